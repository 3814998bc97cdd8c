"""Has the node's software checked whenever there is reason to: a new driver, other cards, orders, or a failed check."""

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Final

import msgspec
import structlog
from msgspec import UNSET, UnsetType

from gpu_control_plane.agent.backends.interface import Backend, BackendError
from gpu_control_plane.agent.cdi.store import NAME as CDI_FILE
from gpu_control_plane.agent.driver.host_paths import HostPaths
from gpu_control_plane.agent.node.options import Hardware, Options
from gpu_control_plane.agent.node.picture import Picture
from gpu_control_plane.agent.node.watch import HardwareWatch, Quiesced
from gpu_control_plane.agent.units import CardID, ResourceName
from gpu_control_plane.agent.validator.files import DriverRoots
from gpu_control_plane.agent.validator.observe import (
    DriverFacts,
    PluginFacts,
    ToolkitFacts,
    devices_matching,
    loaded_modules,
    observe_cdi,
    observe_driver,
)
from gpu_control_plane.agent.validator.targets import Target, targets
from gpu_control_plane.agent.validator.validate import Facts, Validator
from gpu_control_plane.api.gpunodestate import Driver, Injection, StepResult, Validation

_SETTLING: Final = 2.0
"""Seconds that a change is given to be followed by others, so that one check serves them all."""
_RETRY: Final = 60.0
"""Seconds after which a check that failed is made again."""
_HEARING: Final = 20.0
"""Seconds for which a check waits for a kubelet that has just been told of something."""
_PROVEN: Final = "tested before"

_log = structlog.get_logger(component="agent.inspection")


class Situation(msgspec.Struct, frozen=True, kw_only=True):
    """What a check is about: another situation is another check."""

    driver: Driver | None
    cards: tuple[tuple[CardID, str | None], ...]
    ordered: frozenset[ResourceName]
    listed: Mapping[ResourceName, bool]
    """Of the resources ordered, whether the kubelet would hand out some."""

    def same_hardware(self, other: "Situation | None") -> bool:
        return other is not None and (self.driver, self.cards) == (other.driver, other.cards)


class Inspector:
    """`held` tells what the node's status says now; `on_result` is called after every check.

    `find_cuda` looks for the library that programs on the cards load.
    """

    def __init__(
        self,
        options: Options,
        watch: HardwareWatch,
        validator: Validator,
        *,
        find_cuda: Callable[[], Path | None],
        held: Callable[[], Validation | None],
        on_result: Callable[[], None],
        now: Callable[[], datetime],
    ) -> None:
        self._options = options
        self._watch = watch
        self._validator = validator
        self._find_cuda = find_cuda
        self._held = held
        self._on_result = on_result
        self._now = now
        self._situation: Situation | None = None
        self._checked: Situation | None = None
        self._anew = False
        self._busy: frozenset[str] = frozenset()
        self._due = asyncio.Event()
        self._heard = asyncio.Event()
        self._checking: asyncio.Task[Validation] | None = None
        self.result: Validation | None = None

    @property
    def told(self) -> Validation | UnsetType | None:
        """What came of the latest check, None before the first. UNSET where none is ever made: then nothing is known,
        whatever an earlier agent said."""
        return self.result if self._options.validator else UNSET

    def consider(self, situation: Situation, busy: frozenset[str], *, unheard: bool = False) -> None:
        """This is how it is now: a check follows if it was otherwise at the last one.

        `busy` are the addresses of cards, and UUIDs of instances, that pods hold. `unheard`: the kubelet has yet to
        list something that it was told of; a check waits for that, and not for ever.
        """
        self._situation, self._busy = situation, busy
        if unheard:
            self._heard.clear()
        else:
            self._heard.set()
        if situation != self._checked:
            self._due.set()

    def forget(self) -> None:
        """The driver was in other hands: what was proven before says nothing of what is loaded now, whatever its
        version. An upgrade waits for results that are younger than the driver."""
        self._checked, self._anew = None, True
        self._due.set()

    async def run(self) -> None:
        """Check until cancelled."""
        while True:
            await self._due.wait()
            await asyncio.sleep(_SETTLING)
            await self._hearing()
            self._due.clear()
            situation, picture = self._situation, self._watch.picture
            if situation is None or picture is None or self._watch.quiesced:
                continue
            result = await self._attempt(situation, picture)
            if result is None:
                continue
            self._checked, self._anew = situation, False
            self._tell(result)
            self.result = result
            self._on_result()
            if any(step.result is StepResult.FAILED for step in result.steps):
                asyncio.get_running_loop().call_later(_RETRY, self._due.set)

    async def _hearing(self) -> None:
        """A kubelet that is about to hear of a resource must not fail the node."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_HEARING):
                await self._heard.wait()

    async def _attempt(self, situation: Situation, picture: Picture) -> Validation | None:
        """A check, as a task of its own that can be broken off; None when it was."""
        checking = self._checking = asyncio.create_task(self._check(situation, picture))
        try:
            await asyncio.wait((checking,))
        finally:
            checking.cancel()
        if checking.cancelled():
            return None
        error = checking.exception()
        if isinstance(error, Quiesced | BackendError):
            _log.info("the check was broken off", why=str(error))
            return None
        return checking.result()

    async def break_off(self) -> None:
        """Somebody wants the driver: end a check that is under way, with the kernel it may have started."""
        if self._checking is not None:
            self._checking.cancel()
            await asyncio.wait((self._checking,))

    async def _check(self, situation: Situation, picture: Picture) -> Validation:
        held = None if self._anew else self._held()
        failed = held is None or any(step.result is StepResult.FAILED for step in held.steps)
        proven = situation.same_hardware(self._checked) and not failed
        driver, toolkit = await self._watch.call(self._observe)
        facts = Facts(
            driver=driver,
            toolkit=toolkit,
            plugin=PluginFacts(
                ordered=situation.ordered, allocatable={name: int(there) for name, there in situation.listed.items()}
            ),
            targets=self._targets(picture, proven=proven),
            modules=loaded_modules(self._options.host),
            nvidia_fs_device=devices_matching("nvidia-fs*", self._options.host),
            gdrcopy_device=devices_matching("gdrdrv", self._options.host),
            roots=self._roots(driver.library),
        )
        return await self._validator.validate(facts, held, self._now())

    def _observe(self, backend: Backend) -> tuple[DriverFacts, ToolkitFacts]:
        driver = observe_driver(backend, self._find_cuda(), self._options.host)
        if self._options.hardware is Hardware.SIMULATED:
            # Simulated cards have device files and nothing else: the rest is as the simulation says.
            driver = DriverFacts(version=driver.version, module=driver.version, library=Path("libcuda.so.1"))
        if self._options.injection is Injection.CDI:
            return driver, observe_cdi(self._options.cdi / CDI_FILE, HostPaths(self._options.host))
        return driver, ToolkitFacts(runtime=str(self._options.injection))

    def _roots(self, library: Path | None) -> DriverRoots:
        return (
            DriverRoots.of(self._options.origin_of(library), HostPaths(self._options.host))
            if library
            else DriverRoots()
        )

    def _targets(self, picture: Picture, *, proven: bool) -> tuple[Target, ...]:
        """What a kernel is to run on: cards that have proven themselves are left in peace."""
        faulted = {picture.seen[card].address for card, found in self._watch.verdicts.items() if not found.healthy}
        instances = {card.address: card.instances for card in picture.seen.values()}
        found = targets(picture.cards(), instances, self._busy, faulted)
        return (
            tuple(msgspec.structs.replace(target, obstacle=target.obstacle or _PROVEN) for target in found)
            if proven
            else found
        )

    def _tell(self, result: Validation) -> None:
        for step in result.steps:
            if step.result is StepResult.FAILED:
                _log.warning("a check failed", step=step.name, why=step.message)
