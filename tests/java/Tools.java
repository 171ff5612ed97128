import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.util.Arrays;
import org.apache.kafka.common.utils.Exit;

/** Kafka's command-line tools, one after the other in one JVM: a line names a main class and its arguments, separated
 *  by tabs. Prints what the tool printed, and a line that ends it. */
public class Tools {
    static class Ended extends RuntimeException { }

    public static void main(String[] args) throws Exception {
        PrintStream out = System.out;
        Exit.setExitProcedure((code, message) -> { throw new Ended(); });
        Exit.setHaltProcedure((code, message) -> { throw new Ended(); });
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
