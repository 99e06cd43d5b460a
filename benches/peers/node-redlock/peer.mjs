// node-redlock behind the line protocol; see benches/peers/README.md.
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { createInterface } from "node:readline";
import { setTimeout as sleep } from "node:timers/promises";
import Client from "ioredis";

const require = createRequire(import.meta.url);
// Its types name only this export for both kinds of modules.
const { default: Redlock, ExecutionError } = require("redlock");
const version = (name) =>
  JSON.parse(readFileSync(new URL(`node_modules/${name}/package.json`, import.meta.url))).version.replace(/^v/, "");

const [nodes, setting] = process.argv.slice(2);
const tuned = setting === "tuned";

// The TTL of what is measured.
const TTL = 10_000;

const clients = nodes.split(",").map((node) => {
  const [host, port] = node.split(":");
  const client = new Client(
    tuned
      ? { host, port: Number(port), commandTimeout: 50, enableAutoPipelining: true }
      : { host, port: Number(port) },
  );
  client.on("error", () => {});
  return client;
});
// As its README has them, or quick retries.
const settings = tuned
  ? { driftFactor: 0.01, retryCount: 200, retryDelay: 5, retryJitter: 2 }
  : { driftFactor: 0.01, retryCount: 10, retryDelay: 200, retryJitter: 200 };
const redlock = new Redlock(clients, settings);
const held = new Map();

const now = () => process.hrtime.bigint();

/** Waits for the lock: it gives up after its retries, its users call it again. */
async function lock(key, ttl) {
  for (;;) {
    try {
      return await redlock.acquire([key], ttl);
    } catch (error) {
      if (!(error instanceof ExecutionError)) throw error;
    }
  }
}

const did = (promise) => promise.then(() => true, () => false);

const commands = {
  async try(key, ttl) {
    try {
      held.set(key, await redlock.acquire([key], Number(ttl), { retryCount: 0 }));
      return { won: true };
    } catch {
      return { won: false };
    }
  },
  async lock(key, ttl) {
    const from = now();
    const won = await lock(key, Number(ttl));
    const to = now();
    held.set(key, won);
    return { from: Number(from), to: Number(to) };
  },
  async unlock(key) {
    const won = held.get(key);
    held.delete(key);
    const from = now();
    const isHeld = await did(redlock.release(won, { retryCount: 0 }));
    return { from: Number(from), to: Number(now()), held: isHeld };
  },
  async extend(key, ttl) {
    try {
      held.set(key, await redlock.extend(held.get(key), Number(ttl), { retryCount: 0 }));
      return { held: true };
    } catch {
      return { held: false };
    }
  },
  async hold(key, ttl, hold, time) {
    const end = now() + BigInt(time) * 1_000_000n;
    const spans = [];
    while (now() < end) {
      const won = await lock(key, Number(ttl));
      const from = now();
      await sleep(Number(hold));
      const to = now();
      await did(redlock.release(won, { retryCount: 0 }));
      spans.push([Number(from), Number(to)]);
    }
    return { held: spans };
  },
  async latency(time, prefix, atOnce = "1") {
    const end = now() + BigInt(time) * 1_000_000n;
    const us = [];
    let failed = 0;
    for (let number = 0; now() < end; ) {
      const keys = Array.from({ length: Number(atOnce) }, () => `${prefix}:${String(number++).padStart(6, "0")}`);
      const from = now();
      try {
        const won = await redlock.acquire(keys, TTL);
        us.push(Number(now() - from) / 1e3);
        if (!(await did(won.release()))) failed++;
      } catch {
        failed++;
      }
    }
    return { us, failed };
  },
  async cycles(time, workers, prefix) {
    const begin = now();
    const end = begin + BigInt(time) * 1_000_000n;
    let cycles = 0;
    let failed = 0;
    const work = async (worker) => {
      for (let number = 0; now() < end; number++) {
        const key = `${prefix}:${worker}:${String(number).padStart(6, "0")}`;
        try {
          const won = await redlock.acquire([key], TTL);
          await won.release();
          cycles++;
        } catch {
          failed++;
        }
      }
    };
    await Promise.all([...Array(Number(workers)).keys()].map(work));
    return { cycles, failed, seconds: Number(now() - begin) / 1e9 };
  },
};

const say = (answer) => process.stdout.write(JSON.stringify(answer) + "\n");
// Connected, even where the first answers take longer than they may.
for (const client of clients) {
  while (!(await did(client.ping())));
}
say({
  versions: `redlock ${version("redlock")}, ioredis ${version("ioredis")}, node ${process.versions.node}`,
  settings: tuned
    ? "ioredis `enableAutoPipelining`, `commandTimeout` 50; `retryCount` 200, `retryDelay` 5, `retryJitter` 2"
    : "the settings of its README (`retryDelay` 200, `retryJitter` 200)",
  retry_ms: settings.retryDelay + settings.retryJitter,
});
for await (const line of createInterface({ input: process.stdin })) {
  const [name, ...words] = line.trim().split(/\s+/);
  try {
    say(await commands[name](...words));
  } catch (error) {
    say({ error: String(error) });
  }
}
process.exit(0);
