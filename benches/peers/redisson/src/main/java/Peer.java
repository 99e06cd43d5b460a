import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import java.util.stream.Collectors;
import org.redisson.Redisson;
import org.redisson.RedissonRedLock;
import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;
import org.redisson.client.RedisConnectionException;
import org.redisson.config.Config;
import org.redisson.config.SingleServerConfig;

/** Redisson's RedLock behind the line protocol; see benches/peers/README.md. */
public final class Peer {
    private static final String VERSION = "4.7.0";

    private final List<RedissonClient> clients = new ArrayList<>();
    private final Map<String, Held> held = new HashMap<>();

    /** A lock, and its parts, of which each is a lock on one node. */
    private record Held(RedissonRedLock lock, RLock[] parts) {}

    private Peer(String nodes, boolean tuned) {
        for (String node : nodes.split(",")) {
            Config config = new Config();
            SingleServerConfig server = config.useSingleServer().setAddress("redis://" + node);
            if (tuned) {
                server.setTimeout(500).setRetryAttempts(0).setConnectionMinimumIdleSize(8);
            }
            clients.add(connect(config));
        }
    }

    /** On a busy machine a new process does not get its connections in the time that it allows. */
    private static RedissonClient connect(Config config) {
        for (int attempt = 1; ; attempt++) {
            try {
                return Redisson.create(config);
            } catch (RedisConnectionException e) {
                if (attempt == 10) {
                    throw e;
                }
            }
        }
    }

    private Held held(String key) {
        RLock[] parts = clients.stream().map(client -> client.getLock(key)).toArray(RLock[]::new);
        return new Held(new RedissonRedLock(parts), parts);
    }

    /** Locks as the documentation does first: for as long as this process lives. */
    private Held lock(String key) {
        Held lock = held(key);
        lock.lock.lock();
        return lock;
    }

    private String answer(String[] words) throws Exception {
        switch (words[0]) {
            case "try": {
                Held lock = held(words[1]);
                boolean won = lock.lock.tryLock(0, Long.parseLong(words[2]), TimeUnit.MILLISECONDS);
                if (won) {
                    held.put(words[1], lock);
                }
                return "{\"won\":" + won + "}";
            }
            case "lock": {
                long from = System.nanoTime();
                Held lock = lock(words[1]);
                long to = System.nanoTime();
                held.put(words[1], lock);
                return "{\"from\":" + from + ",\"to\":" + to + "}";
            }
            case "unlock": {
                Held lock = held.remove(words[1]);
                boolean was = quorum(lock, RLock::isHeldByCurrentThread);
                long from = System.nanoTime();
                lock.lock.unlock();
                long to = System.nanoTime();
                return "{\"from\":" + from + ",\"to\":" + to + ",\"held\":" + was + "}";
            }
            case "extend":
                // It has no call for this: its watchdog extends what was locked without an end.
                return "{\"held\":null}";
            case "hold":
                return hold(words[1], millis(words[2]), millis(words[3]), millis(words[4]));
            case "latency":
                return latency(millis(words[1]), words[2]);
            case "cycles":
                return cycles(millis(words[1]), Integer.parseInt(words[2]), words[3]);
            default:
                throw new IllegalArgumentException("no such command");
        }
    }

    private interface Question {
        boolean ask(RLock part) throws Exception;
    }

    private static boolean quorum(Held lock, Question question) {
        int yes = 0;
        for (RLock part : lock.parts) {
            try {
                yes += question.ask(part) ? 1 : 0;
            } catch (Exception e) {
                // A part that cannot say is not counted.
            }
        }
        return yes > lock.parts.length / 2;
    }

    private static long millis(String word) {
        return Long.parseLong(word) * 1_000_000;
    }

    private String hold(String key, long ttl, long pause, long time) throws Exception {
        long end = System.nanoTime() + time;
        List<String> spans = new ArrayList<>();
        while (System.nanoTime() < end) {
            Held lock = held(key);
            lock.lock.lock(ttl / 1_000_000, TimeUnit.MILLISECONDS);
            long from = System.nanoTime();
            TimeUnit.NANOSECONDS.sleep(pause);
            spans.add("[" + from + "," + System.nanoTime() + "]");
            lock.lock.unlock();
        }
        return "{\"held\":[" + String.join(",", spans) + "]}";
    }

    private String latency(long time, String prefix) {
        long end = System.nanoTime() + time;
        List<Long> times = new ArrayList<>();
        int failed = 0;
        for (int number = 0; System.nanoTime() < end; number++) {
            String key = String.format("%s:%06d", prefix, number);
            long from = System.nanoTime();
            try {
                Held lock = lock(key);
                times.add(System.nanoTime() - from);
                lock.lock.unlock();
            } catch (RuntimeException e) {
                failed++;
            }
        }
        String us = times.stream().map(ns -> String.valueOf(ns / 1e3)).collect(Collectors.joining(","));
        return "{\"us\":[" + us + "],\"failed\":" + failed + "}";
    }

    private String cycles(long time, int workers, String prefix) throws InterruptedException {
        long begin = System.nanoTime();
        AtomicLong cycles = new AtomicLong();
        AtomicLong failed = new AtomicLong();
        List<Thread> threads = new ArrayList<>();
        for (int index = 0; index < workers; index++) {
            int worker = index;
            Thread thread = new Thread(() -> {
                for (int number = 0; System.nanoTime() - begin < time; number++) {
                    try {
                        lock(String.format("%s:%d:%06d", prefix, worker, number)).lock.unlock();
                        cycles.incrementAndGet();
                    } catch (RuntimeException e) {
                        failed.incrementAndGet();
                    }
                }
            });
            thread.start();
            threads.add(thread);
        }
        for (Thread thread : threads) {
            thread.join();
        }
        double seconds = (System.nanoTime() - begin) / 1e9;
        return "{\"cycles\":" + cycles + ",\"failed\":" + failed + ",\"seconds\":" + seconds + "}";
    }

    public static void main(String[] args) throws Exception {
        boolean tuned = args.length > 1 && args[1].equals("tuned");
        Peer peer = new Peer(args[0], tuned);
        String settings = tuned
            ? "`timeout` 500 ms, `retryAttempts` 0, 8 idle connections"
            : "five `useSingleServer()`, `RedissonRedLock(..).lock()`";
        System.out.println("{\"versions\":\"redisson " + VERSION + ", java "
            + System.getProperty("java.version") + "\",\"settings\":\"" + settings + "\"}");
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line; (line = lines.readLine()) != null; ) {
            String reply;
            try {
                reply = peer.answer(line.trim().split("\\s+"));
            } catch (Exception e) {
                reply = "{\"error\":\"" + String.valueOf(e).replaceAll("[\"\\\\\\p{Cntrl}]", " ") + "\"}";
            }
            System.out.println(reply);
        }
        System.exit(0);
    }
}
