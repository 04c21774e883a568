// Measures a process: its CPU time per message, without a warm-up: the first tenth, or more of few
// messages.

export const TOPIC = 'chat.session.sess_abc123';

/** Messages during which Node compiles the code of a client. */
const COMPILING = 6_000;

/** Counts messages; calls `done` with the figures after the last one. */
export class Meter {
  constructor(count) {
    this.count = count;
    this.warm = Math.floor(Math.max(count / 10, Math.min(COMPILING, count / 2)));
    this.seen = 0;
    this.done = new Promise((resolve) => {
      this.finish = resolve;
    });
  }

  /** Count a message; returns true for the last one. */
  tick(index) {
    if (index !== this.seen) throw new Error(`${index} came where ${this.seen} was due`);
    this.seen += 1;
    if (this.seen === this.warm) {
      this.cpu = process.cpuUsage();
      this.began = process.hrtime.bigint();
    } else if (this.seen === this.count) {
      const { user, system } = process.cpuUsage(this.cpu);
      const seconds = Number(process.hrtime.bigint() - this.began) / 1e9;
      const counted = this.count - this.warm;
      this.finish({ cpu_us: (user + system) / counted, per_second: counted / seconds });
      return true;
    }
    return false;
  }
}

/** Run one of the baselines, and print its figures. */
export async function run(baselines) {
  const [name, port, count] = process.argv.slice(2);
  const meter = new Meter(Number(count));
  const late = setTimeout(() => {
    process.stderr.write(`${name} got ${meter.seen} of ${count}\n`);
    process.exit(1);
  }, 120_000);
  Promise.resolve(baselines[name](Number(port), meter)).catch((error) => {
    process.stderr.write(`${error.stack}\n`);
    process.exit(1);
  });
  const result = await meter.done;
  clearTimeout(late);
  // The servers don't answer closing handshakes, so the sockets are closed without one.
  process.stdout.write(`${JSON.stringify(result)}\n`, () => process.exit(0));
}
