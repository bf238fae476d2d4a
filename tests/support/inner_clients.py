"""A parent of the engine that is dumped and restored with it, and whose clients are too.

A client outside the tree cannot live through a rollback: its connection has gone on. These go
back in time with the engine and see again what they saw.

usage: inner_clients.py FOLDER COMMAND...

For each FOLDER/NAME.plan (a SessionPlan as JSON, with `url` and `model`) the tokens are
appended to FOLDER/NAME.tokens, one a line behind its number. The client hangs up when there is a
FOLDER/NAME.leave; at the end FOLDER/NAME.done has the error, if any.
"""

import json
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

from tools.demo.streams import SessionPlan, Stream

POLL_S = 0.05


def play(plan: Path) -> None:
    document = json.loads(plan.read_text())
    url, model = document.pop("url"), document.pop("model")
    stream = Stream(SessionPlan(**document))
    threading.Thread(target=stream.run, args=(url, model), daemon=True).start()
    written = 0
    # Appending only: a checkpoint then does not insist on the file's size.
    with plan.with_suffix(".tokens").open("a") as out:
        while True:
            ended = stream.done.is_set()
            fresh = stream.tokens[written:]
            out.writelines(f"{written + i} {token}\n" for i, token in enumerate(fresh))
            out.flush()
            written += len(fresh)
            if ended:
                plan.with_suffix(".done").write_text(stream.error or "")
                return
            if plan.with_suffix(".leave").exists():
                stream.leaving.set()
            time.sleep(POLL_S)


def main() -> int:
    folder = Path(sys.argv[1])
    engine = subprocess.Popen(sys.argv[2:])
    signal.signal(signal.SIGTERM, lambda *_: engine.terminate())
    known: set[Path] = set()
    while engine.poll() is None:
        for plan in set(folder.glob("*.plan")) - known:
            known.add(plan)
            threading.Thread(target=play, args=(plan,), daemon=True).start()
        time.sleep(POLL_S)
    return engine.returncode


if __name__ == "__main__":
    sys.exit(main())
