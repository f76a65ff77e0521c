"""Answers on a thread: matched with its open questions, and with what its history has accepted before.

The matching itself is pure (`everstep.pregel.answers`); what a repeated answer repeats may have to be looked
up in the history. What is accepted becomes a RESUME write, which the run's claim makes durable.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from collections.abc import Set as AbstractSet
from typing import Any

from everstep.constants import INTERRUPT, RESUME
from everstep.errors import UnknownInterruptError
from everstep.pregel.answers import (
    Binding,
    answer_to,
    bind,
    check_repeated,
    describe_open,
    is_answer_map,
    nothing_open,
    unknown_id,
)
from everstep.pregel.entry import Kept, at_breakpoint, restore_tasks
from everstep.pregel.request import RunRequest
from everstep.tasks.handlers import result_of
from everstep.tasks.task import Answer, Task
from everstep.types import Interrupt
from everstep_savers.checkpoint import CheckpointTuple, PendingWrite, TaskWrites
from everstep_savers.listings import closing


async def bind_or_refuse(request: RunRequest, saved: CheckpointTuple, answer: Any, tasks: list[Task]) -> Binding | None:
    """What the answer means; None if it only repeats accepted ones."""
    binding = bind(answer, tasks)
    if binding.plain_elsewhere:
        if tasks and at_breakpoint(saved.pending_writes or ()):
            return binding  # a static breakpoint: any value goes on
        async for earlier in _earlier_answers(request):
            check_repeated(answer, earlier)
            return None
        raise nothing_open(answer)
    questions = [(task, question) for task in tasks for question in task.questions]
    for question_id, value in binding.elsewhere.items():
        async for earlier in _earlier_answers(request):
            if earlier.id == question_id:
                check_repeated(value, earlier, questions)
                break
        else:
            await _refuse_superseded(request, question_id, questions)
            raise unknown_id(question_id, questions)
    return None if binding.repeated else binding


async def _refuse_superseded(
    request: RunRequest, question_id: str, questions: Sequence[tuple[Task, Interrupt]]
) -> None:
    """Tell that a question was superseded by a new input, if it was."""
    assert request.saver is not None
    async with closing(request.saver.alist(request.config.saved())) as listing:
        async for saved in listing:
            superseded: Any = saved.metadata.get("superseded", ())
            if question_id in superseded:
                raise UnknownInterruptError(
                    f"question {question_id} is not open any more: a new input superseded it (checkpoint "
                    f"{saved.checkpoint['id']}). {describe_open(questions)}"
                )


async def _earlier_answers(request: RunRequest) -> AsyncIterator[Answer]:
    """Answers accepted anywhere in the thread's history, newest first."""
    assert request.saver is not None
    async with closing(request.saver.alist(request.config.saved())) as listing:
        async for saved in listing:
            for _, channel, value in reversed(saved.pending_writes or []):
                if channel == RESUME:
                    for answer in reversed(value):
                        if isinstance(answer, Answer):
                            yield answer


def accepted_writes(request: RunRequest, checkpoint_id: str, binding: Binding) -> list[TaskWrites]:
    """Bind accepted answers to their tasks; the writes that make that durable."""
    answered: dict[str, Task] = {}
    for task, answer in binding.accepted:
        task.answers[answer.id] = answer
        task.questions = [question for question in task.questions if question.id != answer.id]
        task.suspended = False
        answered[task.id] = task
    return [
        TaskWrites(
            request.config.checkpoint_ns,
            checkpoint_id,
            task.id,
            [(RESUME, list(task.answers.values()))],
            task.path_text,
            task.name,
        )
        for task in answered.values()
    ]


def answer_again(value: Any, tasks: list[Task], pending: Sequence[PendingWrite]) -> Kept:
    """Answer a question of an earlier checkpoint, whatever was answered before; tell which, and whose they are.

    The answered tasks run again with the new answer; answers that followed it are dropped unless their questions were
    open at the same time, and everything else is as it was there.
    """
    restore_tasks(tasks, pending)
    asked = {(task_id): value for task_id, channel, value in pending if channel == INTERRUPT}
    questions = {q.id: (task, q) for task in tasks for q in asked.get(task.id, ())}
    answered = {answer.id: (task, answer) for task in tasks for answer in task.answers.values()}
    given = value if is_answer_map(value) else None
    if given is None:
        if len(questions) != 1:
            raise UnknownInterruptError(
                f"{len(questions)} questions were open at this checkpoint; answer by id: Command(resume={{id: answer}})"
            )
        given = {next(iter(questions)): value}
    reopened = set()
    for question_id, answer in given.items():
        if question_id in questions:
            task, question = questions[question_id]
            beside = {each.id for each in asked[task.id]}
            _reopen(tasks, task, answer_to(question, answer), beside)
        elif question_id in answered:
            task, earlier = answered[question_id]
            _reopen(tasks, task, Answer(question_id, answer, earlier.question))
        else:
            raise unknown_id(question_id, list(questions.values()))
        reopened.add(task.id)
    return Kept(frozenset(reopened), frozenset(given))


def reopen(tasks: list[Task], ids: frozenset[str]) -> None:
    """Let these tasks of a subgraph run again: their questions are answered anew on a branch."""
    for task in [task for task in tasks if task.id in ids]:
        _undo(tasks, task)


def _reopen(tasks: list[Task], task: Task, answer: Answer, beside: AbstractSet[str] = frozenset()) -> None:
    """Let a task run again with this answer, those that came before it, and those to questions asked beside it."""
    ids = list(task.answers)
    earlier = ids[: ids.index(answer.id)] if answer.id in ids else ids
    kept = {each: task.answers[each] for each in ids if each in earlier or each in beside}
    task.answers = {**kept, answer.id: answer}
    task.questions = [question for question in task.questions if question.id != answer.id]
    _undo(tasks, task)


def _undo(tasks: list[Task], task: Task) -> None:
    """Let a task run again, whatever came of it."""
    task.finished = task.stored = task.suspended = False
    task.writes, task.commands = [], ()
    if task.handler is not None:
        tasks.remove(task.handler)
        task.handler = task.error = None


def kept_writes(checkpoint_ns: str, checkpoint_id: str, tasks: Sequence[Task]) -> list[TaskWrites]:
    """What a branch keeps of the tasks of the checkpoint it starts from: results, open questions, answers."""
    kept = []
    for task in tasks:
        writes: list[tuple[str, Any]] = []
        if task.finished:
            writes += result_of(task)
        if task.questions:
            writes.append((INTERRUPT, list(task.questions)))
        if task.answers:
            writes.append((RESUME, list(task.answers.values())))
        if writes:
            kept.append(TaskWrites(checkpoint_ns, checkpoint_id, task.id, writes, task.path_text, task.name))
    return kept
