"""`python -m tests.bench [--quick] [ROOM …]`: runs benchmarks, prints tables, writes the page.

A room is one benchmark. A full run takes some minutes per room and ends by itself. `--quick` takes
some minutes in total and writes nothing. A run of all rooms writes `docs/performance.md` and
`tests/bench/results/latest.json`. With `--keep`, most rooms can be run alone: their results replace
those of the last run.

`scale` measures nothing. It calculates the tables of `docs/scale.md` from the results of the last
run, and writes them with `--keep`.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from tests.bench import (
    connecting,
    connections,
    crossing,
    curve,
    fanout,
    http,
    latency,
    memory,
    mesh,
    publish,
    receive,
    report,
    scale,
    small_streams,
    sp,
    spark,
    spark_engine,
    token_bytes,
    token_streams,
    typescript,
)
from tests.bench.readers import raise_limit

if TYPE_CHECKING:
    from tests.bench.processes import Json

ROOMS = {
    "receive": receive.measure,
    "publish": publish.measure,
    "latency": latency.measure,
    "latency-large": latency.measure_large,
    "connecting": connecting.measure,
    "fanout": fanout.measure,
    "fanout-large": fanout.measure_large,
    "http": http.measure,
    "curve": curve.measure,
    "memory": memory.measure,
    "connections": connections.measure,
    "crossing": crossing.measure,
    "typescript": typescript.measure,
    "sp": sp.measure,
    "mesh": mesh.measure,
    "small-streams": small_streams.measure,
    "token-streams": token_streams.measure,
    "token-bytes": token_bytes.measure,
    "spark": spark.measure,
    "spark-engine": spark_engine.measure,
}
# Rooms whose results contain the time and the machine of the measurement.
SELF_CONTAINED = {
    "connections",
    "crossing",
    "curve",
    "fanout",
    "fanout-large",
    "http",
    "latency",
    "latency-large",
    "typescript",
    "sp",
    "mesh",
    "small-streams",
    "token-streams",
    "token-bytes",
    "publish",
    "receive",
    "spark",
    "spark-engine",
}
LONG = {"fanout-large", "latency-large"}
"""A quick run without room names omits them: opening ten thousand sockets takes minutes."""
RESULTS = Path(__file__).with_name("results") / "latest.json"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer rounds; writes nothing")
    parser.add_argument("--render", action="store_true", help="write the page from the last run")
    parser.add_argument("--keep", action="store_true", help="write a run of these rooms, too")
    parser.add_argument("rooms", nargs="*", metavar="ROOM", help=", ".join([*ROOMS, "scale"]))
    options = parser.parse_args()
    if options.render:
        report.write(json.loads(RESULTS.read_text(encoding="utf-8")))
        return
    if options.rooms == ["scale"]:
        results = json.loads(RESULTS.read_text(encoding="utf-8"))
        print(scale.tables(results))
        if options.keep:
            scale.write(results)
        return
    unknown = set(options.rooms) - set(ROOMS)
    if unknown:
        parser.error(f"there is no {', '.join(sorted(unknown))}; choose from {', '.join(ROOMS)}")
    if options.keep and (options.quick or not options.rooms or set(options.rooms) - SELF_CONTAINED):
        parser.error(f"only a full run of {', '.join(SELF_CONTAINED)} can be kept on its own")
    raise_limit()
    run: Json = {
        "date": datetime.now(UTC).date().isoformat(),
        "quick": options.quick,
        "machine": report.machine(),
        "load": [round(os.getloadavg()[0], 2)],
    }
    for name in options.rooms or [each for each in ROOMS if not options.quick or each not in LONG]:
        begin, load = time.monotonic(), os.getloadavg()[0]
        run[name] = ROOMS[name](quick=options.quick)
        loads = [round(load, 2), round(os.getloadavg()[0], 2)]
        run[name]["run"] = {"date": run["date"], "load": loads}
        print(f"{name}: {time.monotonic() - begin:.0f} s", file=sys.stderr, flush=True)
    run["load"].append(round(os.getloadavg()[0], 2))
    # JSON turns keys into strings. Printed results must equal those that are read back later.
    run = json.loads(json.dumps(run))
    print(report.render(run))
    if options.keep:
        kept = {name: run[name] for name in options.rooms}
        last = json.loads(RESULTS.read_text(encoding="utf-8"))
        if run["machine"]["cpu"] != last["machine"]["cpu"]:
            for room in kept.values():
                room["run"]["cpu"] = run["machine"]["cpu"]
        run = {**last, **kept}
    if options.keep or not (options.quick or options.rooms):
        RESULTS.parent.mkdir(exist_ok=True)
        RESULTS.write_text(json.dumps(run, indent=1) + "\n", encoding="utf-8")
        report.write(run)


if __name__ == "__main__":
    main()
