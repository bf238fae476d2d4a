"""One round of the demo: sessions in mid-decode, a mark, a stop, perhaps a flipped bit, a
resume, a verdict, and the clients' streams for a while longer.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tools.demo.engine import Engine
from tools.demo.errors import DemoError
from tools.demo.kv_map import Target, read_kv_map
from tools.demo.report import RoundResult, progress
from tools.demo.sidecar import Sidecar
from tools.demo.stopping import Stopped, Stopper
from tools.demo.streams import SessionPlan, Streams, open_streams
from tools.demo.verdicts import Verdict

WORKER = "demo"
RANK = 0
# Deep enough that every session is in the middle of its decode at the mark.
TOKENS_BEFORE_MARK = 60
TOKENS_AFTER_VERDICT = 60
# A middle layer of the small model's thirty.
LAYER = 13
# A low bit of the number's fraction: the text need not change for memory to be wrong.
BIT = 3


@dataclass(frozen=True, slots=True)
class Setting:
    """What all rounds have in common. `drill_folder` is where the rank writes its KV map."""

    sidecar: Sidecar
    engine: Engine
    stopper: Stopper
    folder: Path
    drill_folder: Path
    plans: tuple[SessionPlan, ...]
    reference: dict[str, list[int]]


def leave_alone(setting: Setting, streams: Streams, stopped: Stopped) -> None:
    """The clean round: nothing is changed."""


def flip_one_bit(setting: Setting, streams: Streams, stopped: Stopped) -> None:
    """Changes one bit of one KV row that the first session holds."""
    target = middle_row(setting, streams)
    before, after = stopped.flip_bit(target, BIT)
    progress(
        f"flipped bit {BIT} of rank {target.rank} layer {target.layer} position "
        f"{target.position} at {target.address:#x}: {before:#04x} to {after:#04x}"
    )


def middle_row(setting: Setting, streams: Streams) -> Target:
    """A row in the middle of what the first session held at the mark."""
    kv_map = read_kv_map(setting.drill_folder, RANK)
    request = streams.all[0].request_id
    return kv_map.target(request, LAYER, kv_map.session(request).positions // 2)


def play_round(
    setting: Setting, name: str, tamper: Callable[[Setting, Streams, Stopped], None]
) -> RoundResult:
    """Plays one round to its end. DemoError if anything but the verdict went wrong."""
    streams = open_streams(setting.engine.url, setting.engine.model, setting.plans)
    streams.wait_for_tokens(TOKENS_BEFORE_MARK)
    mark = setting.sidecar.mark(WORKER, name)
    progress(f"marked {name}: step {mark['step']}, {mark['sessions']} sessions in flight")
    stopped = setting.stopper.stop(setting.engine.tree, setting.folder / name)
    before = sum(streams.counts())
    progress(f"stopped in mid-decode, {before} tokens with clients: {setting.stopper.name}")
    setting.sidecar.mark_taken(WORKER, name, stopped.image)
    tamper(setting, streams, stopped)
    resume_seconds = stopped.resume()
    progress(f"resumed in {resume_seconds:.1f} s; judging")
    verdict = setting.sidecar.restored(WORKER, name)
    progress(f"verdict: {verdict.line()}")
    for reason in verdict.reasons():
        progress(f"  {reason}")
    went_on = watch_them_go_on(streams, setting.reference)
    return RoundResult(
        name=name,
        verdict=verdict,
        stop_seconds=stopped.seconds,
        size_bytes=stopped.size_bytes,
        resume_seconds=resume_seconds,
        tokens_before=before,
        tokens_after=sum(streams.counts()),
        streams=went_on,
    )


def watch_them_go_on(streams: Streams, reference: dict[str, list[int]]) -> str:
    """What becomes of the clients' streams, against the run that nobody interrupted."""
    try:
        streams.wait_for_more(TOKENS_AFTER_VERDICT)
    except DemoError as error:
        return f"broken: {error}"
    finally:
        streams.leave()
    other = [
        name
        for name, tokens in streams.tokens().items()
        if any(a != b for a, b in zip(tokens, reference[name], strict=False))
    ]
    if other:
        return f"went on; other tokens than uninterrupted: {', '.join(other)}"
    return "went on, equal to the uninterrupted run"


def passed(clean: Verdict, bitflip: Verdict) -> bool:
    """Whether both rounds came out as they must."""
    return (
        clean.final
        and clean.name == "RESUMED_EXACT"
        and bitflip.name == "KV_MISMATCH"
        and bool(bitflip.kv_places())
    )
