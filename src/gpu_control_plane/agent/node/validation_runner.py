"""Runs the checks of the node's software when there is reason to: a new driver, other cards, orders, a failed check."""

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Final

import msgspec
import structlog
from msgspec import UNSET, UnsetType

from gpu_control_plane.agent.backends.interface import Backend, BackendError
from gpu_control_plane.agent.cdi.spec_file import FILE_NAME
from gpu_control_plane.agent.driver.host_paths import HostPaths
from gpu_control_plane.agent.hardware_snapshot import HardwareSnapshot
from gpu_control_plane.agent.kubelet.container_runtime import UNKNOWN, ContainerRuntime, RuntimeSettings
from gpu_control_plane.agent.node.hardware_watch import DriverReleased, HardwareWatch
from gpu_control_plane.agent.node.options import Hardware, Options
from gpu_control_plane.agent.units import CardID, ResourceName
from gpu_control_plane.agent.validator.observe import PluginFacts, ToolkitFacts, observe_cdi
from gpu_control_plane.agent.validator.steps import DRIVER
from gpu_control_plane.agent.validator.targets import Target, targets
from gpu_control_plane.agent.validator.validator import CheckFacts, Validator
from gpu_control_plane.agent.vendors.interface import DriverCheck, VendorChecks
from gpu_control_plane.api.gpunodestate import Driver, Injection, StepResult, Validation

_PROVEN: Final = "tested before"

_log = structlog.get_logger(component="agent.inspection")


class CheckTiming(msgspec.Struct, frozen=True, kw_only=True):
    """How long the checks wait, in seconds."""

    settle: float = 2.0
    """How long a change is given to be followed by others, so that one check serves them all."""
    retry: float = 60.0
    """After this time a check that failed is made again."""
    confirm: float = 20.0
    """For how long a check waits for a kubelet that has just been told of a resource."""


TIMING: Final = CheckTiming()


class CheckSubject(msgspec.Struct, frozen=True, kw_only=True):
    """What a check is about: another subject is another check."""

    driver: Driver | None
    cards: tuple[tuple[CardID, str | None], ...]
    ordered: frozenset[ResourceName]
    listed: Mapping[ResourceName, bool]
    """Of the resources ordered, whether the kubelet may allocate some."""
    runtime: tuple[int, int] | None = None
    """The start of the container runtime: it may be set up differently since."""

    def same_hardware(self, other: "CheckSubject | None") -> bool:
        return other is not None and (self.driver, self.cards) == (other.driver, other.cards)


class ValidationRunner:
    """`reported` tells what the node's status says now; `on_result` is called after every check.

    `checks` are those of the vendor whose cards the node has, and `kernel_step` is what it calls the check that runs a
    kernel on each of them. `container_runtime` is asked how it is set up, if there is one that can be, and
    `runtime_handler` is what the vendor calls its handler in it.
    """

    def __init__(
        self,
        options: Options,
        watch: HardwareWatch,
        validator: Validator,
        *,
        checks: Callable[[], VendorChecks],
        kernel_step: Callable[[], str | None],
        container_runtime: ContainerRuntime | None,
        runtime_handler: Callable[[], str | None],
        reported: Callable[[], Validation | None],
        on_result: Callable[[], None],
        now: Callable[[], datetime],
        timing: CheckTiming = TIMING,
    ) -> None:
        self._options = options
        self._watch = watch
        self._validator = validator
        self._checks = checks
        self._kernel_step = kernel_step
        self._container_runtime = container_runtime
        self._runtime_handler = runtime_handler
        self._reported = reported
        self._on_result = on_result
        self._now = now
        self._timing = timing
        self._subject: CheckSubject | None = None
        self._checked: CheckSubject | None = None
        self._anew = False
        self._in_use: frozenset[str] = frozenset()
        self._faulted: frozenset[str] = frozenset()
        self._due = asyncio.Event()
        self._confirmed = asyncio.Event()
        self._checking: asyncio.Task[Validation] | None = None
        self.result: Validation | None = None

    @property
    def status(self) -> Validation | UnsetType | None:
        """The result of the latest check, None before the first. UNSET where checks are switched off: then nothing is
        known, whatever an earlier agent reported."""
        return self.result if self._options.validator else UNSET

    @property
    def passed_driver_checks(self) -> bool:
        """Whether burn-in may begin: a test on a driver that does not work would be counted against the card."""
        if not self._options.validator:
            return True
        needed = {DRIVER, self._kernel_step()}
        return self.result is not None and not any(
            step.name in needed and step.result is StepResult.FAILED for step in self.result.steps
        )

    def consider(
        self,
        subject: CheckSubject,
        *,
        in_use: frozenset[str],
        faulted: frozenset[str] = frozenset(),
        unconfirmed: bool = False,
    ) -> None:
        """A check follows if the subject differs from that of the last one.

        `in_use` are the addresses of cards, and UUIDs of instances, that pods hold, `faulted` the addresses of
        unhealthy cards. `unconfirmed`: the kubelet has yet to list something that it was told of; a check waits for
        that, but not for ever.
        """
        if self._container_runtime is not None:
            subject = msgspec.structs.replace(subject, runtime=self._container_runtime.identity())
        self._subject, self._in_use, self._faulted = subject, in_use, faulted
        if unconfirmed:
            self._confirmed.clear()
        else:
            self._confirmed.set()
        if subject != self._checked:
            self._due.set()

    def forget(self) -> None:
        """The driver was released: what was proven before says nothing of what is loaded now, whatever its version. An
        upgrade waits for results that are younger than the driver."""
        self._checked, self._anew = None, True
        self._due.set()

    async def run(self) -> None:
        """Check until cancelled."""
        while True:
            await self._due.wait()
            await asyncio.sleep(self._timing.settle)
            await self._confirmation()
            self._due.clear()
            subject, hardware = self._subject, self._watch.snapshot
            if subject is None or hardware is None or self._watch.released:
                continue
            result = await self._attempt(subject, hardware)
            if result is None:
                continue
            self._checked, self._anew = subject, False
            self._log_failures(result)
            self.result = result
            self._on_result()
            if any(step.result is StepResult.FAILED for step in result.steps):
                asyncio.get_running_loop().call_later(self._timing.retry, self._due.set)

    async def _confirmation(self) -> None:
        """A kubelet that has not yet taken in a list of devices must not fail the node."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._timing.confirm):
                await self._confirmed.wait()

    async def _attempt(self, subject: CheckSubject, hardware: HardwareSnapshot) -> Validation | None:
        """A check, as a task of its own that can be broken off; None when it was."""
        checking = self._checking = asyncio.create_task(self._check(subject, hardware))
        try:
            await asyncio.wait((checking,))
        finally:
            checking.cancel()
        if checking.cancelled():
            return None
        error = checking.exception()
        if isinstance(error, DriverReleased | BackendError):
            _log.info("validation broken off", why=str(error))
            return None
        return checking.result()

    async def break_off(self) -> None:
        """End a check that is under way, with the kernel it may have started: the driver is to be released."""
        if self._checking is not None:
            self._checking.cancel()
            await asyncio.wait((self._checking,))

    async def _check(self, subject: CheckSubject, hardware: HardwareSnapshot) -> Validation:
        reported = None if self._anew else self._reported()
        failed = reported is None or any(step.result is StepResult.FAILED for step in reported.steps)
        proven = subject.same_hardware(self._checked) and not failed
        checks = self._checks()
        driver, toolkit = await self._watch.call(self._observe, checks, await self._settings())
        toolkit = msgspec.structs.replace(toolkit, not_configured=self._options.runtime_problem)
        facts = CheckFacts(
            driver=driver,
            toolkit=toolkit,
            plugin=PluginFacts(
                ordered=subject.ordered, allocatable={name: int(listed) for name, listed in subject.listed.items()}
            ),
            kernel_step=self._kernel_step(),
            targets=self._targets(hardware, proven=proven),
            extras=checks.check_extras(),
            status_files=checks.status_files,
        )
        return await self._validator.validate(facts, reported, self._now())

    async def _settings(self) -> RuntimeSettings:
        return UNKNOWN if self._container_runtime is None else await self._container_runtime.settings()

    def _observe(
        self, backend: Backend, checks: VendorChecks, settings: RuntimeSettings
    ) -> tuple[DriverCheck, ToolkitFacts]:
        driver, injection = checks.check_driver(backend), self._options.injection
        if injection is Injection.CDI:
            spec = self._options.cdi / FILE_NAME
            if self._options.hardware is Hardware.SIMULATED:  # Maybe beside its node, with other paths.
                settings = msgspec.structs.replace(settings, spec_dirs=None)
            return driver, observe_cdi(spec, HostPaths(self._options.host), settings=settings)
        handler = self._runtime_handler() if injection is Injection.RUNTIME else None
        missing = handler is not None and settings.handlers is not None and handler not in settings.handlers
        return driver, ToolkitFacts(runtime=str(injection), missing_handler=handler if missing else None)

    def _targets(self, hardware: HardwareSnapshot, *, proven: bool) -> tuple[Target, ...]:
        """What a kernel is to run on: cards that have passed before are left alone."""
        instances = {card.address: card.instances for card in hardware.observed.values()}
        found = targets(hardware.cards(), instances, self._in_use, self._faulted)
        return (
            tuple(msgspec.structs.replace(target, obstacle=target.obstacle or _PROVEN) for target in found)
            if proven
            else found
        )

    def _log_failures(self, result: Validation) -> None:
        for step in result.steps:
            if step.result is StepResult.FAILED:
                _log.warning("validation step failed", step=step.name, why=step.message)
