"""The templates of Stages as the controllers know them: each is read once for each version of it and of its tasks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from weakref import WeakValueDictionary

from kargo_py.api.promotion import Promotion, PromotionStep, PromotionTaskReference
from kargo_py.api.promotion_task import ClusterPromotionTask, PromotionTask, PromotionTaskSpec
from kargo_py.api.stage import Stage
from kargo_py.api.types import JsonObject
from kargo_py.controllers.template import Rulebook, Template, template_variables
from kargo_py.engine.aside import Aside
from kargo_py.engine.problems import TaskName
from kargo_py.engine.tasks import found_in, task_name
from kargo_py.kube.cache import Cache
from kargo_py.kube.codec import JSON
from kargo_py.kube.errors import NotFound
from kargo_py.kube.resources import Key
from kargo_py.steps.step import Step


@dataclass(frozen=True, slots=True)
class _Known:
    uid: str
    generation: int
    tasks: Sequence[JsonObject | None]
    template: Template

    def is_of(self, stage: Stage, tasks: Sequence[JsonObject | None]) -> bool:
        """Whether nothing has changed of what it was made of."""
        same = (self.uid, self.generation) == (stage.metadata.uid, stage.metadata.generation)
        return same and len(tasks) == len(self.tasks) and all(map(_is, tasks, self.tasks))


def _is(one: object, other: object) -> bool:
    return one is other


@dataclass(frozen=True, slots=True)
class TaskHome:
    """Where the tasks of one kind are: all of them, and how one is read."""

    cache: Cache[JsonObject]
    read: Callable[[JsonObject | None], PromotionTask | ClusterPromotionTask | None]
    namespaced: bool = True

    def key(self, namespace: str, name: str) -> Key:
        """The key of what a Stage in *namespace* calls *name*."""
        return Key(namespace if self.namespaced else "", name)


class Templates:
    """Templates, with what is wrong with them; one for all controllers, so that none is made twice.

    *homes* has the tasks by kind. What takes long to make is made *aside*.
    """

    def __init__(
        self,
        stages: Cache[JsonObject],
        homes: Mapping[str, TaskHome],
        steps: Mapping[str, Step[Any]],
        aside: Aside,
    ) -> None:
        self._stages = stages
        self._homes = homes
        self._aside = aside
        self._known: dict[Key, _Known] = {}
        self._locks: WeakValueDictionary[Key, asyncio.Lock] = WeakValueDictionary()
        self._kinds = {uses: type(step) for uses, step in steps.items()}
        stages.subscribe(self._forget)

    def _forget(self, old: JsonObject | None, new: JsonObject | None) -> None:
        if new is None and old is not None:
            self._known.pop(JSON.meta(old).key, None)

    async def of(self, stage: Stage) -> Template:
        """The template of *stage*. A task that is not in the cache is asked for once. Raises KubeError."""
        key, references = Key(stage.namespace, stage.name), _references(stage)
        if (template := self._template(key, stage, references)) is not None:
            return template
        tasks = self._tasks(stage.namespace, references)
        if missing := [reference for reference, task in zip(references, tasks, strict=True) if task is None]:
            # All at once: one after the other they would wait for each other's tries, where no answer comes.
            await self.look_at(stage.namespace, missing)
        lock = self._locks.get(key)
        if lock is None:
            lock = self._locks[key] = asyncio.Lock()
        # Many Promotions may ask for it at once, and the Stage
        async with lock:
            return self._template(key, stage, references) or await self._made(key, stage, references)

    def _template(self, key: Key, stage: Stage, references: Sequence[PromotionTaskReference]) -> Template | None:
        """What was made of *stage* before, if it still holds."""
        known = self._known.get(key)
        if known is not None and known.is_of(stage, self._tasks(stage.namespace, references)):
            return known.template
        return None

    async def _made(self, key: Key, stage: Stage, references: Sequence[PromotionTaskReference]) -> Template:
        tasks = self._tasks(stage.namespace, references)
        rulebook = self.rulebook(stage.namespace, references)
        if rulebook.is_much(_steps(stage), template_variables(stage)):
            template = await self._aside.call(stage.namespace, lambda: rulebook.template(stage))
        else:
            template = rulebook.template(stage)
        if self._stages.get(key) is not None:
            self._known[key] = _Known(stage.metadata.uid, stage.metadata.generation, tasks, template)
        return template

    async def of_now(self, stage: Stage) -> Template:
        """The template of *stage* with its tasks as they are at this moment. Raises KubeError."""
        await self.look_at(stage.namespace, _references(stage))
        return await self.of(stage)

    async def look_at(self, namespace: str, references: Iterable[PromotionTaskReference]) -> None:
        """Bring the tasks that are named up to date in the caches. Raises KubeError."""
        for reference in references:
            home = self._homes[reference.kind]
            try:
                await home.cache.read_live(home.key(namespace, reference.name))
            except NotFound as error:
                if not error.resource_missing:
                    raise
                # The cluster has no such kind, so there is no such task.

    def rulebook(self, namespace: str, references: Iterable[PromotionTaskReference]) -> Rulebook:
        """What steps written in *namespace* that name no other tasks are judged by.

        It has the tasks as the caches have them now, and looks at nothing later: it may be used in a thread.
        """
        tasks: dict[TaskName, PromotionTaskSpec] = {}
        for reference in references:
            if (task := self._homes[reference.kind].read(self._task(namespace, reference))) is not None:
                tasks[task_name(reference)] = task.spec
        return Rulebook(self._kinds, found_in(tasks))

    def _tasks(self, namespace: str, references: Iterable[PromotionTaskReference]) -> list[JsonObject | None]:
        return [self._task(namespace, reference) for reference in references]

    def _task(self, namespace: str, reference: PromotionTaskReference) -> JsonObject | None:
        home = self._homes[reference.kind]
        return home.cache.get(home.key(namespace, reference.name))


def _steps(stage: Stage) -> Sequence[PromotionStep]:
    template = stage.spec.promotion_template
    return template.spec.steps if template is not None else ()


def _references(stage: Stage) -> list[PromotionTaskReference]:
    return task_references(_steps(stage))


def references_of(promotion: Promotion, stage: Stage) -> list[PromotionTaskReference]:
    """The tasks that *promotion* and the template of *stage* name, each once."""
    return task_references([*(promotion.spec.steps or ()), *_steps(stage)])


def task_references(steps: Iterable[PromotionStep]) -> list[PromotionTaskReference]:
    """The tasks that *steps* name, each once."""
    named = {(step.task.kind, step.task.name): step.task for step in steps if step.task is not None}
    return list(named.values())
