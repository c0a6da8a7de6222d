"""Order, fairness and limits of the scheduler, on jobs that only count."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from octavo.engine.scheduler import Decode, Prefill, Scheduler


@dataclass(eq=False)
class Job:
    """A prompt of `left` tokens, then `answer` tokens; pieces end at multiples of `mark`."""

    name: str
    left: int
    answer: int = 1
    mark: int = 10**9
    done: int = 0

    def piece_tokens(self, budget: int) -> int:
        return min(budget, self.left, self.mark - self.done % self.mark)


def start_all(scheduler: Scheduler[Job]) -> None:
    while job := scheduler.candidate():
        scheduler.start(job)


def play(scheduler: Scheduler[Job]) -> list[str]:
    """Run everything; a line for each step: "a3 b2" a prefill, "(a b)" a decode step."""
    steps = []
    while scheduler.n_running or scheduler.waiting:
        start_all(scheduler)
        match scheduler.next():
            case Prefill(pieces):
                steps.append(" ".join(f"{job.name}{n}" for job, n in pieces))
                for job, n in pieces:
                    job.left, job.done = job.left - n, job.done + n
                    if job.left == 0:
                        scheduler.generate(job)
            case Decode(jobs):
                steps.append("(" + " ".join(job.name for job in jobs) + ")")
                for job in jobs:
                    job.answer -= 1
                    if job.answer == 0:
                        scheduler.remove(job)
    return steps


def scheduler_of(*jobs: Job, max_running: int = 8, step_tokens: int = 4) -> Scheduler[Job]:
    scheduler: Scheduler[Job] = Scheduler(max_running, step_tokens)
    for job in jobs:
        scheduler.add(job)
    return scheduler


def test_one_prompt_goes_in_pieces() -> None:
    assert play(scheduler_of(Job("a", 9, 2))) == ["a4", "a4", "a1", "(a)", "(a)"]


def test_pieces_end_at_marks() -> None:
    assert play(scheduler_of(Job("a", 9, mark=3))) == ["a3", "a3", "a3", "(a)"]


def test_short_prompts_share_a_step() -> None:
    assert play(scheduler_of(Job("a", 2), Job("b", 1), Job("c", 3)))[:2] == ["a2 b1 c1", "(a b)"]


def test_prompts_take_turns() -> None:
    steps = play(scheduler_of(Job("a", 12), Job("b", 3)))
    assert steps[:3] == ["a4", "b3 a1", "(b)"]


def test_decoding_gets_every_other_step() -> None:
    steps = play(scheduler_of(Job("a", 1, 4), Job("b", 15, 1)))
    assert steps == ["a1 b3", "(a)", "b4", "(a)", "b4", "(a)", "b4", "(a b)"]


def test_first_come_first_served_within_the_limit() -> None:
    jobs = [Job(name, 1, 2) for name in "abc"]
    assert play(scheduler_of(*jobs, max_running=2)) == [
        "a1 b1",
        "(a b)",
        "(a b)",
        "c1",
        "(c)",
        "(c)",
    ]


def test_put_back_comes_before_others() -> None:
    a, b = Job("a", 5), Job("b", 5)
    scheduler = scheduler_of(a, b, max_running=1)
    start_all(scheduler)
    scheduler.put_back(a)
    assert list(scheduler.waiting) == [a, b]
    assert scheduler.n_running == 0


def test_nothing_to_do() -> None:
    scheduler = scheduler_of()
    assert scheduler.next() is None
    assert scheduler.candidate() is None


def test_who_waits_for_another_lets_the_next_go_first() -> None:
    a, b, c = Job("a", 1), Job("b", 1), Job("c", 1)
    scheduler = scheduler_of(a, b, c)
    assert scheduler.candidate(lambda job: job is a) is b
    scheduler.start(b)
    assert scheduler.candidate(lambda job: job is a) is c
    assert scheduler.candidate() is a
    assert scheduler.candidate(lambda job: True) is None


@given(
    st.lists(st.tuples(st.integers(1, 40), st.integers(1, 9)), min_size=1, max_size=9),
    st.integers(1, 4),
    st.integers(1, 16),
)
def test_everyone_ends_and_decoding_never_starves(
    sizes: list[tuple[int, int]], max_running: int, step_tokens: int
) -> None:
    jobs = [Job(chr(97 + i), left, answer) for i, (left, answer) in enumerate(sizes)]
    scheduler = scheduler_of(*jobs, max_running=max_running, step_tokens=step_tokens)
    running_answers = False
    was_prefill = False
    steps = 0
    while scheduler.n_running or scheduler.waiting:
        start_all(scheduler)
        assert scheduler.n_running <= max_running
        running_answers = bool(scheduler.decoding)
        work = scheduler.next()
        if isinstance(work, Prefill):
            assert not (was_prefill and running_answers), "two prompt steps while answers wait"
            assert 0 < sum(n for _, n in work.pieces) <= step_tokens
            assert len({id(job) for job, _ in work.pieces}) == len(work.pieces)
            for job, n in work.pieces:
                job.left -= n
                if job.left == 0:
                    scheduler.generate(job)
        elif work is not None:
            for job in work.jobs:
                job.answer -= 1
                if job.answer == 0:
                    scheduler.remove(job)
        was_prefill = isinstance(work, Prefill)
        steps += 1
        assert steps <= sum(left + answer for left, answer in sizes)
    assert all(job.left == 0 and job.answer == 0 for job in jobs)
