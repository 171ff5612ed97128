import java.security.MessageDigest;
import java.security.Provider;
import java.security.SecureRandom;
import java.security.Security;
import java.util.Arrays;
import java.util.HexFormat;
import java.util.Map;
import javax.security.auth.Subject;
import javax.security.auth.callback.Callback;
import javax.security.auth.callback.CallbackHandler;
import javax.security.auth.callback.NameCallback;
import javax.security.auth.callback.PasswordCallback;
import javax.security.auth.spi.LoginModule;
import javax.security.sasl.SaslClient;
import javax.security.sasl.SaslClientFactory;
import javax.security.sasl.SaslException;
import javax.security.sasl.SaslServer;
import javax.security.sasl.SaslServerFactory;

/** A mechanism of SASL that neither Kafka nor the sidecar knows, for brokers and for Kafka's own clients. The client says
 *  its name, the server a nonce, the client a digest of nonce and password, and the server a last word.
 *
 *  The client's first message is `name NUL user NUL x`: as one of PLAIN it would name `user`, whom the server ignores.
 */
public class Knock implements LoginModule {
    static final String MECHANISM = "X-KNOCK";
    static String password = "";

    static {
        Security.addProvider(new Own());
    }

    public static final class Own extends Provider {
        public Own() {
            super("Knock", "1.0", MECHANISM);
            put("SaslServerFactory." + MECHANISM, Servers.class.getName());
            put("SaslClientFactory." + MECHANISM, Clients.class.getName());
        }
    }

    @Override
    public void initialize(Subject subject, CallbackHandler handler, Map<String, ?> state, Map<String, ?> options) {
        if (options.get("password") != null) password = (String) options.get("password");
        if (options.get("username") != null) subject.getPublicCredentials().add(options.get("username"));
        subject.getPrivateCredentials().add(password);
    }

    @Override public boolean login() { return true; }
    @Override public boolean commit() { return true; }
    @Override public boolean abort() { return false; }
    @Override public boolean logout() { return true; }

    static byte[] digest(String nonce, String secret) throws SaslException {
        try {
            byte[] found = MessageDigest.getInstance("SHA-256").digest((nonce + secret).getBytes());
            return HexFormat.of().formatHex(found).getBytes();
        } catch (java.security.NoSuchAlgorithmException e) {
            throw new SaslException("no digest", e);
        }
    }

    // ---- brokers
    public static final class Servers implements SaslServerFactory {
        @Override
        public SaslServer createSaslServer(String mechanism, String protocol, String host, Map<String, ?> properties,
                CallbackHandler handler) {
            return MECHANISM.equals(mechanism) ? new Server() : null;
        }

        @Override
        public String[] getMechanismNames(Map<String, ?> properties) { return new String[] {MECHANISM}; }
    }

    static final class Server implements SaslServer {
        private String name, nonce;
        private boolean complete;

        @Override
        public byte[] evaluateResponse(byte[] said) throws SaslException {
            if (name == null) {
                name = new String(said).split("\0")[0];
                nonce = "nonce-" + new SecureRandom().nextLong();
                return nonce.getBytes();
            }
            if (!Arrays.equals(said, digest(nonce, password))) throw new SaslException("wrong");
            complete = true;
            return "come in".getBytes();
        }

        @Override public String getMechanismName() { return MECHANISM; }
        @Override public boolean isComplete() { return complete; }
        @Override public String getAuthorizationID() { return name; }
        @Override public byte[] unwrap(byte[] in, int offset, int len) { throw new IllegalStateException(); }
        @Override public byte[] wrap(byte[] out, int offset, int len) { throw new IllegalStateException(); }
        @Override public Object getNegotiatedProperty(String property) { return null; }
        @Override public void dispose() { }
    }

    // ---- clients
    public static final class Clients implements SaslClientFactory {
        @Override
        public SaslClient createSaslClient(String[] mechanisms, String authorizationId, String protocol, String host,
                Map<String, ?> properties, CallbackHandler handler) {
            return Arrays.asList(mechanisms).contains(MECHANISM) ? new Client(handler) : null;
        }

        @Override
        public String[] getMechanismNames(Map<String, ?> properties) { return new String[] {MECHANISM}; }
    }

    static final class Client implements SaslClient {
        private final CallbackHandler handler;
        private int steps;
        private String secret;

        Client(CallbackHandler handler) { this.handler = handler; }

        @Override public boolean hasInitialResponse() { return true; }

        @Override
        public byte[] evaluateChallenge(byte[] said) throws SaslException {
            steps++;
            if (steps == 1) {
                NameCallback name = new NameCallback("name");
                PasswordCallback word = new PasswordCallback("password", false);
                try {
                    handler.handle(new Callback[] {name, word});
                } catch (Exception e) {
                    throw new SaslException("no credentials", e);
                }
                secret = new String(word.getPassword());
                return (name.getName() + "\0victim\0x").getBytes();
            }
            return steps == 2 ? digest(new String(said), secret) : null;
        }

        @Override public String getMechanismName() { return MECHANISM; }
        @Override public boolean isComplete() { return steps >= 3; }
        @Override public byte[] unwrap(byte[] in, int offset, int len) { throw new IllegalStateException(); }
        @Override public byte[] wrap(byte[] out, int offset, int len) { throw new IllegalStateException(); }
        @Override public Object getNegotiatedProperty(String property) { return null; }
        @Override public void dispose() { }
    }
}
