"""A small serving engine without a model: it schedules, samples and keeps KV, and reports what it
does as core events. Positions are kept here in the simplest way, one session at a time, so that
the core's folding can be held against them.
"""

from collections import deque
from dataclasses import dataclass, field

import numpy as np

from sidecar.core.events import (
    BlockUpdate,
    Commit,
    KvGroup,
    KvRows,
    Launch,
    LiveSession,
    RankAttestation,
    RankStep,
    Sampling,
    SchedulerAttestation,
    SessionEnd,
    SessionEndReason,
    SessionKv,
    SessionStart,
    TensorDigest,
    WeightDigests,
)

BLOCK = 4
BLOCKS = 40
LAYERS = (0, 1, 2, 3, 4)
DIGEST_LAYERS = (3, 2)
VOCABULARY = 97
CHUNK = 7
MASK = (1 << 64) - 1
GROUP = KvGroup(0, BLOCK, BLOCKS, LAYERS, DIGEST_LAYERS, row_bytes=64)


def u32(values):
    return np.array(list(values), dtype=np.uint32)


def mix(value):
    value = (value ^ (value >> 31)) * 0x9E3779B97F4A7C15 & MASK
    return value ^ (value >> 29)


def prefix_hash(tokens):
    value = 1
    for token in tokens:
        value = mix(value + token + 1)
    return value


def row_of(tokens, rank):
    """What a rank's KV row holds at the last position of `tokens`."""
    value = prefix_hash(tokens)
    return [mix(value + 1000 * (rank + 1) + digest) for digest in range(len(DIGEST_LAYERS))]


def next_token(tokens):
    return prefix_hash(tokens) % VOCABULARY


@dataclass(eq=False)
class Request:
    session_id: str
    prompt: list
    limit: int
    sampling: Sampling
    row: int = -1
    tokens: list = field(default_factory=list)
    # What the ranks know: also sampled tokens whose step has no outcome yet.
    device: list = field(default_factory=list)
    computed: int = 0
    in_flight: int = 0
    samples_due: int = 0
    table: list = field(default_factory=list)
    kv_life: int = 0
    drafting: bool = False
    alive: bool = True
    announced: bool = False


@dataclass(eq=False)
class Share:
    """One session's part in a step."""

    request: Request
    start: int
    count: int
    drafts: list
    kv_life: int
    samples: bool
    # Filled in when the step runs.
    sampled: list = field(default_factory=list)
    rejected: int = 0


@dataclass(eq=False)
class Step:
    number: int
    shares: list
    tables: list


class Engine:
    """`depth` 0: each step has its outcome before the next is launched; 1: one step overlaps."""

    def __init__(self, ranks=1, depth=0):
        self.ranks = ranks
        self.depth = depth
        self.requests = []
        self.waiting = []
        self.launched = self.committed = self.executed = 0
        self.steps = deque()
        self.free = deque(range(1, BLOCKS))
        self.users = dict.fromkeys(range(BLOCKS), 0)
        self.cache = {}
        self.memory = np.zeros((ranks, BLOCKS * BLOCK, len(DIGEST_LAYERS)), np.uint64)
        self.weights = [
            {f"layer{i}.weight": TensorDigest(mix(100 * rank + i), 64) for i in range(3)}
            for rank in range(ranks)
        ]
        self.scheduler_log = []
        self.rank_logs = [[WeightDigests(dict(weights))] for weights in self.weights]
        self._to_abort = []
        self._to_preempt = []
        self._names = 0
        self._lives = 0

    # what users do

    def add(self, prompt, limit=12, seed=None):
        self._names += 1
        sampling = Sampling(
            temperature=0.0 if seed is None else 0.5, seed=seed, max_tokens=limit, ignore_eos=True
        )
        request = Request(f"session-{self._names}", list(prompt), limit, sampling)
        request.tokens = list(prompt)
        request.device = list(prompt)
        self.waiting.append(request)
        return request

    def abort(self, request):
        """Takes effect with the next launch."""
        if request in self.waiting:
            request.alive = False
            self.waiting.remove(request)
        else:
            self._to_abort.append(request)

    def preempt(self, request):
        """Takes effect with the next launch."""
        self._to_preempt.append(request)

    # what the engine does

    def step(self, drafts=0):
        """Launches a step; gives outcomes of what is beyond the depth."""
        self._launch(drafts)
        while len(self.steps) > self.depth:
            self.commit()

    def drain(self):
        while self.steps:
            self.commit()

    def commit(self):
        self.execute(self.steps[0].number)
        step = self.steps.popleft()
        counts, tokens, rejected, ended = [], [], [], []
        for share in step.shares:
            request = share.request
            kept = share.kv_life == request.kv_life
            sampled = share.sampled if request.alive else []
            counts.append(len(sampled))
            tokens += sampled
            rejected.append(share.rejected if kept else 0)
            if kept:
                request.in_flight -= share.count
                request.computed += share.count - share.rejected
            if request.alive:
                request.tokens += sampled
                request.samples_due -= share.samples
                request.drafting = False
                self._remember(request)
                if len(request.tokens) >= len(request.prompt) + request.limit:
                    request.alive = False
                    self._leave(request)
                    ended.append(SessionEnd(request.row, SessionEndReason.LENGTH))
        self.committed = step.number
        plain = all(count == 1 for count in counts)
        self.scheduler_log.append(
            Commit(
                step.number,
                u32(tokens),
                None if plain else u32(counts),
                u32(rejected) if any(rejected) else None,
                tuple(ended),
            )
        )

    def execute(self, until=None):
        """Ranks run what was launched."""
        for step in self.steps:
            if self.executed < step.number <= (until or self.launched):
                self._run(step)

    def attest(self, weights=True):
        """What memory is now: the scheduler's and each rank's."""
        sessions = [self._live(request) for request in self.requests + self.waiting]
        scheduler = SchedulerAttestation(self.launched, self.committed, tuple(sessions))
        return scheduler, [self._attest_rank(rank, weights) for rank in range(self.ranks)]

    def written(self, request):
        return request.computed + sum(
            share.count
            for step in self.steps
            if step.number <= self.executed
            for share in step.shares
            if share.request is request and share.kv_life == request.kv_life
        )

    def _launch(self, drafts):
        started, blocks, shares = [], [], []
        ended, preempted = self._aborted(), self._gave_up()
        for request in [*self.requests, *self.waiting]:
            share = self._schedule(request, drafts, blocks)
            if share is None:
                continue
            if not request.announced:
                request.announced = True
                self.waiting.remove(request)
                self.requests.append(request)
                started.append(
                    SessionStart(
                        request.row,
                        request.session_id,
                        u32(request.prompt),
                        request.sampling,
                        0,
                        u32([]),
                    )
                )
            shares.append(share)
        self.launched += 1
        counts = [share.count for share in shares]
        number_of_drafts = [len(share.drafts) for share in shares]
        self.scheduler_log.append(
            Launch(
                self.launched,
                u32(share.request.row for share in shares),
                u32(share.start for share in shares),
                None if all(count == 1 for count in counts) else u32(counts),
                u32(number_of_drafts) if any(number_of_drafts) else None,
                tuple(ended),
                tuple(started),
                tuple(request.row for request in preempted),
                tuple(
                    BlockUpdate(row_request.row, 0, offset, u32(ids))
                    for row_request, offset, ids in blocks
                ),
            )
        )
        self.steps.append(
            Step(self.launched, shares, [list(share.request.table) for share in shares])
        )

    def _aborted(self):
        ended = []
        for request in dict.fromkeys(self._to_abort):
            if request in self.requests:
                request.alive = False
                self._leave(request)
                ended.append(SessionEnd(request.row, SessionEndReason.ABORTED))
        self._to_abort = []
        return ended

    def _gave_up(self):
        preempted = [
            each for each in dict.fromkeys(self._to_preempt) if each in self.requests and each.table
        ]
        for request in preempted:
            self._give_up_kv(request)
        self._to_preempt = []
        return preempted

    def _schedule(self, request, drafts, blocks):
        if request.drafting or not request.alive:
            return None
        if drafts and request.samples_due:
            # Drafts follow a known token: wait for it.
            return None
        logical = len(request.tokens) + request.samples_due
        had = len(request.table)
        if request.computed + request.in_flight == 0 and not request.table:
            request.table = self._hits(request.tokens[: len(request.tokens) - 1])
            for block in request.table:
                self._hold(block)
            request.computed = len(request.table) * BLOCK
        start = request.computed + request.in_flight
        count = min(logical - start, CHUNK)
        decoding = start >= len(request.prompt) and request.samples_due == 0
        guesses = self._guesses(request, drafts) if decoding and count == 1 else []
        needed = -(-(start + count + len(guesses)) // BLOCK) - len(request.table)
        if count <= 0 or needed > len(self.free):
            if not request.in_flight and not had:
                self._release(request)
            return None
        if not request.announced:
            taken = {each.row for each in self.requests}
            request.row = next(row for row in range(1000) if row not in taken)
        for _ in range(max(needed, 0)):
            block = self.free.popleft()
            self.cache = {key: kept for key, kept in self.cache.items() if kept != block}
            self._hold(block)
            request.table.append(block)
        if len(request.table) > had:
            blocks.append((request, had, request.table[had:]))
        count += len(guesses)
        samples = start + count - len(guesses) == logical
        request.in_flight += count
        request.samples_due += samples
        request.drafting = bool(guesses)
        return Share(request, start, count, guesses, request.kv_life, samples)

    def _guesses(self, request, drafts):
        """The first drafts are right, the last is wrong."""
        left = len(request.prompt) + request.limit - len(request.tokens) - 1
        guesses, tokens = [], list(request.tokens)
        for i in range(min(drafts, left)):
            token = next_token(tokens)
            guesses.append(token if i + 1 < drafts else (token + 1) % VOCABULARY)
            tokens.append(guesses[-1])
        return guesses

    def _run(self, step):
        self.executed = step.number
        slots = [[] for _ in range(self.ranks)]
        digests = [[] for _ in range(self.ranks)]
        for share, table in zip(step.shares, step.tables, strict=True):
            request = share.request
            known = request.device + share.drafts
            for position in range(share.start, share.start + share.count):
                slot = table[position // BLOCK] * BLOCK + position % BLOCK
                for rank in range(self.ranks):
                    row = row_of(known[: position + 1], rank)
                    self.memory[rank, slot] = row
                    slots[rank].append(slot)
                    digests[rank].append(row)
            if share.samples:
                self._sample(share)
        for rank in range(self.ranks):
            if slots[rank]:
                rows = np.array(digests[rank], np.uint64)
                kv = (KvRows(0, u32(slots[rank]), rows),)
                self.rank_logs[rank].append(RankStep(step.number, kv))

    def _sample(self, share):
        device = share.request.device
        accepted = 0
        for guess in share.drafts:
            if next_token(device) != guess:
                break
            device.append(guess)
            share.sampled.append(guess)
            accepted += 1
        share.rejected = len(share.drafts) - accepted
        token = next_token(device)
        device.append(token)
        share.sampled.append(token)

    # blocks

    def _hits(self, tokens):
        table = []
        for end in range(BLOCK, len(tokens) + 1, BLOCK):
            block = self.cache.get(tuple(tokens[:end]))
            if block is None:
                break
            table.append(block)
        return table

    def _hold(self, block):
        if self.users[block] == 0 and block in self.free:
            self.free.remove(block)
        self.users[block] += 1

    def _remember(self, request):
        """Whole blocks that are computed can be hit by others."""
        full = min(request.computed, len(request.tokens)) // BLOCK
        for i in range(min(full, len(request.table))):
            self.cache.setdefault(tuple(request.tokens[: (i + 1) * BLOCK]), request.table[i])

    def _release(self, request):
        for block in reversed(request.table):
            self.users[block] -= 1
            if self.users[block] == 0:
                self.free.append(block)
        request.table = []
        request.computed = 0

    def _give_up_kv(self, request):
        self._release(request)
        request.in_flight = 0
        self._lives += 1
        request.kv_life = self._lives

    def _leave(self, request):
        self._give_up_kv(request)
        self.requests.remove(request)

    # memory

    def _live(self, request):
        tables = (BlockUpdate(request.row, 0, 0, u32(request.table)),) if request.table else ()
        row = request.row if request.announced else 10_000 + int(request.session_id.split("-")[1])
        return LiveSession(
            row=row,
            session_id=request.session_id,
            emitted=len(request.tokens),
            computed=request.computed,
            in_flight=request.in_flight,
            prompt_length=len(request.prompt),
            tokens=u32(request.tokens),
            sampling=request.sampling,
            blocks=tables,
            waiting=not request.announced,
        )

    def _attest_rank(self, rank, weights):
        kv = []
        for request in self.requests:
            count = self.written(request)
            slots = [
                request.table[position // BLOCK] * BLOCK + position % BLOCK
                for position in range(count)
            ]
            # In two pieces, as a large session would come.
            for first, last in ((0, count // 2), (count // 2, count)):
                if first < last:
                    rows = self.memory[rank, slots[first:last]].copy()
                    kv.append(SessionKv(request.row, request.session_id, 0, first, rows))
        return RankAttestation(
            self.executed,
            tuple(kv),
            WeightDigests(dict(self.weights[rank])) if weights else None,
            kv_groups=(GROUP,),
        )
