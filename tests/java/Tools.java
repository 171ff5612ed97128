import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Proxy;
import java.util.Arrays;

/** Kafka's command-line tools, one after the other in one JVM: a line names a main class and its arguments, separated
 *  by tabs. Prints what the tool printed, and a line that ends it. */
public class Tools {
    static class Ended extends RuntimeException { }

    /** Kafka 4.4 has it in another package. */
    static Class<?> exit() throws ClassNotFoundException {
        try {
            return Class.forName("org.apache.kafka.common.utils.internals.Exit");
        } catch (ClassNotFoundException e) {
            return Class.forName("org.apache.kafka.common.utils.Exit");
        }
    }

    public static void main(String[] args) throws Exception {
        PrintStream out = System.out;
        Class<?> exit = exit();
        Class<?> procedure = Class.forName(exit.getName() + "$Procedure");
        Object ends = Proxy.newProxyInstance(
            procedure.getClassLoader(), new Class<?>[] {procedure}, (proxy, method, given) -> { throw new Ended(); });
        exit.getMethod("setExitProcedure", procedure).invoke(null, ends);
        exit.getMethod("setHaltProcedure", procedure).invoke(null, ends);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] words = line.split("\t");
            ByteArrayOutputStream said = new ByteArrayOutputStream();
            PrintStream capture = new PrintStream(said, true);
            System.setOut(capture);
            System.setErr(capture);
            try {
                Object rest = Arrays.copyOfRange(words, 1, words.length);
                Class.forName(words[0]).getMethod("main", String[].class).invoke(null, rest);
            } catch (InvocationTargetException e) {
                if (!(e.getCause() instanceof Ended)) e.getCause().printStackTrace(capture);
            }
            capture.flush();
            out.print(said);
            out.println("\n=== end ===");
            out.flush();
        }
    }
}
