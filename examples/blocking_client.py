"""The same client without asyncio: for scripts, notebooks and threads."""

from __future__ import annotations

import threading

from hanzoai.pubsub import PubSub

TOPIC = "demo.jobs"


def main() -> None:
    with PubSub() as ps:
        jobs = ps.subscribe(TOPIC)
        jobs.wait()

        def work() -> None:
            for number in range(3):
                ps.publish(TOPIC, {"type": "job", "data": {"number": number}})
            ps.publish(TOPIC, {"type": "done", "data": {}})

        worker = threading.Thread(target=work)
        worker.start()
        for message in jobs:
            if message.type == "done":
                break
            print(f"job {message.data['number']}")
        worker.join()


if __name__ == "__main__":
    main()
