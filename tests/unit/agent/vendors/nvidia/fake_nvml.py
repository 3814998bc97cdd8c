# ruff: noqa: N802 - functions are called as NVML calls them
"""NVML as the tests need it: the readings of a real H200, the rules of MIG, and faults on demand.

It takes the place of the binding. Structures, constants and errors are the binding's own; a function that is not
here answers as a library too old to have it.
"""

import ctypes
import json
import queue
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pynvml  # type: ignore[import-untyped]

_READINGS = json.loads((Path(__file__).parent / "h200.json").read_text())
_MIB = 1 << 20
_FIELDS = {82: ("temperature", "memoryC"), 230: ("health", "recoveryAction", "value")}


class FakeCard:
    """One card; tests change its readings and its state."""

    def __init__(self, number: int) -> None:
        self.readings: dict[str, Any] = json.loads(json.dumps(_READINGS["card"]))
        self.bus_id = f"00000000:0{number}:06.0"
        self.uuid = f"GPU-00000000-1111-2222-3333-44444444444{number}"
        self.number = number
        self.enabled = False
        self.answers: dict[str, int] = {
            function: group["code"] for group in self.readings["errors"].values() for function in group["functions"]
        }
        """Error codes by function."""
        self.always: int | None = None
        """The error code of every call about this card."""
        self.links: dict[int, str] = {}
        self.programs: list[SimpleNamespace] = []
        self.gpu_instances: dict[int, SimpleNamespace] = {}

    @property
    def address(self) -> str:
        return self.bus_id[4:]

    def read(self, *path: str) -> Any:
        found: Any = self.readings
        for part in path:
            found = found[part]
        return found


class FakeNVML(ModuleType):
    """The binding."""

    def __init__(self, cards: int = 1) -> None:
        super().__init__("fake_nvml")
        self.cards = [FakeCard(number) for number in range(cards)]
        self.nvmlLib = None
        self._nvmlGetFunctionPointer_cache: dict[str, object] = {}
        self.init_error: int | None = None
        self.running = 0
        self.held = 0
        """Event sets and samples that were not given back."""
        self.events: queue.Queue[SimpleNamespace | int] = queue.Queue()
        """What is to be told next: events, or error codes."""
        self.registered: dict[str, int] = {}
        self.calls: list[str] = []
        self.in_use: set[str] = set()
        """UUIDs of cards and MIG instances that programs use."""
        self.fail_compute_instance = False
        self._made = 0

    def __getattribute__(self, name: str) -> Any:
        """Functions pass through here to be counted, and to fail as told."""
        if not name.startswith("nvml") or name == "nvmlLib" or not callable(getattr(pynvml, name, None)):
            return super().__getattribute__(name)
        return lambda *arguments: self.answer(name, *arguments)

    def __getattr__(self, name: str) -> Any:
        return getattr(pynvml, name)

    def answer(self, name: str, *arguments: Any) -> Any:
        self.calls.append(name)
        card = self.find(arguments[0]) if arguments and isinstance(arguments[0], str) else None
        whole = card is not None and arguments[0] == card.bus_id
        code = (card.always or (card.answers.get(name) if whole else None)) if card else None
        if code:
            raise pynvml.NVMLError(code)
        try:
            function: Callable[..., Any] = object.__getattribute__(self, f"_{name}")
        except AttributeError:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_FUNCTION_NOT_FOUND) from None
        return function(*arguments)

    def find(self, handle: str) -> FakeCard:
        return next(card for card in self.cards if handle == card.bus_id or handle in _uuids(card))

    def tell(self, card: FakeCard, event: int, data: int = 0) -> None:
        self.events.put(SimpleNamespace(device=card.bus_id, eventType=event, eventData=data))

    # Life

    def _nvmlInit(self) -> None:
        if self.init_error:
            raise pynvml.NVMLError(self.init_error)
        self.running += 1

    def _nvmlShutdown(self) -> None:
        self.running -= 1

    # Inventory

    def _nvmlDeviceGetCount(self) -> int:
        return len(self.cards)

    def _nvmlDeviceGetHandleByIndex(self, index: int) -> str:
        if self.cards[index].always:
            raise pynvml.NVMLError(self.cards[index].always)
        return self.cards[index].bus_id

    def _nvmlDeviceGetPciInfo(self, handle: str) -> SimpleNamespace:
        card = self.find(handle)
        return SimpleNamespace(busId=card.bus_id, pciDeviceId=card.read("pci", "pciDeviceId"))

    def _nvmlSystemGetDriverVersion(self) -> str:
        return str(_READINGS["system"]["driverVersion"])

    def _nvmlSystemGetCudaDriverVersion(self) -> int:
        return int(_READINGS["system"]["cudaDriverVersion"])

    def _nvmlDeviceGetName(self, handle: str) -> Any:
        return self.find(handle).read("identity", "name")

    def _nvmlDeviceGetUUID(self, handle: str) -> str:
        return handle if handle.startswith("MIG-") else self.find(handle).uuid

    def _nvmlDeviceGetSerial(self, handle: str) -> Any:
        return self.find(handle).read("identity", "serial")

    def _nvmlDeviceGetMinorNumber(self, handle: str) -> int:
        return self.find(handle).number

    def _nvmlDeviceGetArchitecture(self, handle: str) -> Any:
        return self.find(handle).read("identity", "architecture", "value")

    def _nvmlDeviceGetCudaComputeCapability(self, handle: str) -> tuple[int, int]:
        found = self.find(handle).read("identity", "cudaComputeCapability")
        return found["major"], found["minor"]

    def _nvmlDeviceGetNvLinkState(self, handle: str, link: int) -> int:
        links = self.find(handle).links
        if link not in links:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
        return 1

    def _nvmlDeviceGetNvLinkRemotePciInfo(self, handle: str, link: int) -> SimpleNamespace:
        return SimpleNamespace(busId=self.find(handle).links[link])

    def _nvmlDeviceGetP2PStatus(self, _handle: str, _other: str, _kind: int) -> int:
        return 0

    # Health and measurements

    def _nvmlDeviceGetMemoryInfo(self, handle: str, version: int = 0) -> SimpleNamespace:
        memory = self.find(handle).read("memory")
        if not version:
            return SimpleNamespace(total=memory["totalBytes"], free=memory["freeBytes"], used=memory["usedBytesV1"])
        exact = {name: memory["v2"][f"{name}MiB"] * _MIB for name in ("total", "free", "used", "reserved")}
        return SimpleNamespace(**exact)

    def _nvmlDeviceGetPowerUsage(self, handle: str) -> Any:
        return self.find(handle).read("power", "usageMilliwatts")

    def _nvmlDeviceGetTotalEnergyConsumption(self, handle: str) -> Any:
        return self.find(handle).read("power", "totalEnergyMillijoules")

    def _nvmlDeviceGetTemperature(self, handle: str, _sensor: int) -> Any:
        return self.find(handle).read("temperature", "gpuC")

    def _nvmlDeviceGetClockInfo(self, handle: str, kind: int) -> Any:
        return self.find(handle).read("clocks", "currentMHz", {1: "sm", 2: "memory"}[kind])

    def _nvmlDeviceGetCurrentClocksEventReasons(self, handle: str) -> Any:
        return self.find(handle).read("clocks", "eventReasons")

    def _nvmlDeviceGetUtilizationRates(self, handle: str) -> SimpleNamespace:
        found = self.find(handle).read("utilization")
        return SimpleNamespace(gpu=found["gpuPercent"], memory=found["memoryPercent"])

    def _nvmlDeviceGetEncoderUtilization(self, handle: str) -> list[int]:
        return list(self.find(handle).read("utilization", "encoder").values())

    def _nvmlDeviceGetDecoderUtilization(self, handle: str) -> list[int]:
        return list(self.find(handle).read("utilization", "decoder").values())

    def _nvmlDeviceGetPcieReplayCounter(self, handle: str) -> Any:
        return self.find(handle).read("pci", "replayCounter")

    def _nvmlDeviceGetPcieThroughput(self, handle: str, kind: int) -> Any:
        return self.find(handle).read("pci", "throughputKBps", ("tx", "rx")[kind])

    def _nvmlDeviceGetTotalEccErrors(self, handle: str, kind: int, counter: int) -> Any:
        found = self.find(handle).read("health", "ecc", ("volatile", "aggregate")[counter])
        return found[("dramCorrectable", "dramUncorrectable")[kind]]

    def _nvmlDeviceGetRemappedRows(self, handle: str) -> tuple[int, ...]:
        return tuple(int(value) for value in self.find(handle).read("health", "remappedRows").values())

    def _nvmlDeviceGetViolationStatus(self, _handle: str, _policy: int) -> SimpleNamespace:
        return SimpleNamespace(violationTime=0)

    def _nvmlDeviceGetGridLicensableFeatures(self, _handle: str) -> SimpleNamespace:
        return SimpleNamespace(licensableFeaturesCount=0, gridLicensableFeatures=[])

    def _nvmlDeviceGetFieldValues(self, handle: str, fields: list[tuple[int, int]]) -> list[SimpleNamespace]:
        ((field, _scope),) = fields
        if field not in _FIELDS:
            return [SimpleNamespace(nvmlReturn=pynvml.NVML_ERROR_NOT_SUPPORTED)]
        value = SimpleNamespace(uiVal=self.find(handle).read(*_FIELDS[field]))
        return [SimpleNamespace(nvmlReturn=0, valueType=pynvml.NVML_VALUE_TYPE_UNSIGNED_INT, value=value)]

    def _nvmlDeviceGetComputeRunningProcesses_v3(self, handle: str) -> list[SimpleNamespace]:
        return self.find(handle).programs

    def _nvmlDeviceGetGraphicsRunningProcesses_v3(self, _handle: str) -> list[SimpleNamespace]:
        return []

    def _nvmlDeviceGetProcessUtilization(self, handle: str, _since: int) -> list[SimpleNamespace]:
        if not self.find(handle).programs:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_FOUND)
        return [
            SimpleNamespace(pid=program.pid, smUtil=10 * moment, timeStamp=moment)
            for program in self.find(handle).programs
            for moment in (2, 1)
        ]

    # Events

    def _nvmlDeviceGetSupportedEventTypes(self, handle: str) -> Any:
        return self.find(handle).read("health", "supportedEventTypes")

    def _nvmlEventSetCreate(self) -> object:
        self.held += 1
        return object()

    def _nvmlEventSetFree(self, _events: object) -> None:
        self.held -= 1

    def _nvmlDeviceRegisterEvents(self, handle: str, mask: int, _events: object) -> None:
        self.registered[handle] = mask

    def _nvmlEventSetWait_v2(self, _events: object, milliseconds: int) -> SimpleNamespace:
        try:
            told = self.events.get(timeout=milliseconds / 1000) if milliseconds else self.events.get_nowait()
        except queue.Empty:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_TIMEOUT) from None
        if isinstance(told, int):
            raise pynvml.NVMLError(told)
        return told

    # Profiling

    def _nvmlGpmQueryDeviceSupport(self, _handle: str) -> SimpleNamespace:
        return SimpleNamespace(isSupportedDevice=1)

    def _nvmlGpmSampleAlloc(self) -> Any:
        self.held += 1
        return self._pointer(pynvml.c_nvmlGpmSample_t)

    def _nvmlGpmSampleFree(self, _sample: object) -> None:
        self.held -= 1

    def _nvmlGpmSampleGet(self, _handle: str, sample: object) -> object:
        return sample

    def _nvmlGpmMigSampleGet(self, handle: str, gpu_instance: int, sample: object) -> object:
        assert gpu_instance in self.find(handle).gpu_instances
        return sample

    def _nvmlGpmMetricsGet(self, question: Any) -> Any:
        assert _number(question.sample1) < _number(question.sample2), "samples in the order in which they were taken"
        for metric in question.metrics[: question.numMetrics]:
            metric.value = 50.0
            metric.nvmlReturn = pynvml.NVML_ERROR_NOT_SUPPORTED if metric.metricId in (60, 61) else 0
        return question

    # MIG

    def _nvmlDeviceGetMigMode(self, handle: str) -> list[int]:
        return [int(self.find(handle).enabled)] * 2

    def _nvmlDeviceSetMigMode(self, handle: str, mode: int) -> int:
        card = self.find(handle)
        if card.gpu_instances or card.uuid in self.in_use or self.held:
            return int(pynvml.NVML_ERROR_IN_USE)
        card.enabled = bool(mode)
        return 0

    def _nvmlDeviceGetMaxMigDeviceCount(self, handle: str) -> int:
        return 7 if self.find(handle).enabled else 0

    def _nvmlDeviceGetMigDeviceHandleByIndex(self, handle: str, index: int) -> str:
        ready = [found.uuid for found in self.find(handle).gpu_instances.values() if found.compute is not None]
        # The first number is a gap.
        if not 1 <= index <= len(ready):
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_FOUND)
        return str(ready[index - 1])

    def _nvmlDeviceGetGpuInstanceProfileInfo(self, handle: str, index: int, version: int) -> SimpleNamespace:
        assert version in (1, 2)
        return SimpleNamespace(**self._profile(handle, "enumIndex", index))

    def _nvmlDeviceGetGpuInstancePossiblePlacements(self, handle: str, profile: int, places: Any, count: Any) -> int:
        found = self._profile(handle, "id", profile)["placements"]
        count._obj.value = len(found)
        for place, kept in zip(found, () if places is None else places, strict=False):
            kept.start, kept.size = place["start"], place["size"]
        return 0

    def _nvmlDeviceCreateGpuInstanceWithPlacement(self, handle: str, profile: int, wanted: Any) -> Any:
        card, kind, place = self.find(handle), self._profile(handle, "id", profile), wanted._obj
        if not card.enabled:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
        taken = [found.place for found in card.gpu_instances.values()]
        overlaps = any(each.start < place.start + place.size and place.start < each.start + each.size for each in taken)
        same = sum(found.profile == profile for found in card.gpu_instances.values())
        if overlaps or same >= kind["instanceCount"]:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_INSUFFICIENT_RESOURCES)
        pointer = self._pointer(pynvml.c_nvmlGpuInstance_t)
        number = _number(pointer)
        card.gpu_instances[number] = SimpleNamespace(
            profile=profile,
            place=SimpleNamespace(start=place.start, size=place.size),
            slices=kind["sliceCount"],
            uuid=f"MIG-00000000-0000-0000-0000-{number:012}",
            compute=None,
        )
        return pointer

    def _nvmlDeviceGetGpuInstances(self, handle: str, profile: int, kept: Any, count: Any) -> int:
        card = self.find(handle)
        if not card.enabled:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
        numbers = [number for number, found in card.gpu_instances.items() if found.profile == profile]
        count._obj.value = len(numbers)
        for place, number in enumerate(numbers):
            kept[place] = ctypes.cast(ctypes.c_void_p(number), pynvml.c_nvmlGpuInstance_t)
        return 0

    def _nvmlDeviceGetGpuInstanceById(self, handle: str, number: int) -> Any:
        if number not in self.find(handle).gpu_instances:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_FOUND)
        return ctypes.cast(ctypes.c_void_p(number), pynvml.c_nvmlGpuInstance_t)

    def _nvmlGpuInstanceGetInfo(self, gpu_instance: Any) -> SimpleNamespace:
        _, found = self._gpu_instance(gpu_instance)
        return SimpleNamespace(id=_number(gpu_instance), profileId=found.profile, placement=found.place)

    def _nvmlGpuInstanceGetComputeInstanceProfileInfo(self, gpu_instance: Any, index: int, _engine: int) -> Any:
        slices = {0: 1, 1: 2, 2: 3, 3: 4, 4: 7}.get(index)
        _, found = self._gpu_instance(gpu_instance)
        if slices is None or slices > found.slices:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
        return SimpleNamespace(
            id=index, sliceCount=slices, instanceCount=found.slices // slices, multiprocessorCount=16 * slices
        )

    def _nvmlGpuInstanceCreateComputeInstance(self, gpu_instance: Any, profile: int) -> Any:
        if self.fail_compute_instance:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_INSUFFICIENT_RESOURCES)
        _, found = self._gpu_instance(gpu_instance)
        assert {0: 1, 1: 2, 2: 3, 3: 4, 4: 7}[profile] == found.slices, "the compute instance spans its GPU instance"
        found.compute = profile
        return self._compute(gpu_instance)

    def _nvmlGpuInstanceGetComputeInstances(self, gpu_instance: Any, profile: int, kept: Any, count: Any) -> int:
        _, found = self._gpu_instance(gpu_instance)
        count._obj.value = int(found.compute == profile)
        if count._obj.value:
            kept[0] = self._compute(gpu_instance)
        return 0

    def _nvmlGpuInstanceGetComputeInstanceById(self, gpu_instance: Any, number: int) -> Any:
        assert number == 0
        return self._compute(gpu_instance)

    def _nvmlComputeInstanceGetInfo(self, compute: Any) -> SimpleNamespace:
        _, found = self._gpu_instance(compute)
        return SimpleNamespace(device=found.uuid, id=0)

    def _nvmlComputeInstanceDestroy(self, compute: Any) -> None:
        _, found = self._gpu_instance(compute)
        if found.uuid in self.in_use:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_IN_USE)
        found.compute = None

    def _nvmlGpuInstanceDestroy(self, gpu_instance: Any) -> None:
        card, found = self._gpu_instance(gpu_instance)
        if found.compute is not None:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_IN_USE)
        del card.gpu_instances[_number(gpu_instance)]

    def _nvmlDeviceGetGpuInstanceId(self, handle: str) -> int:
        return next(number for number, found in self.find(handle).gpu_instances.items() if found.uuid == handle)

    def _nvmlDeviceGetComputeInstanceId(self, _handle: str) -> int:
        return 0

    def _gpu_instance(self, pointer: Any) -> tuple[FakeCard, SimpleNamespace]:
        number = _number(pointer)
        return next((card, card.gpu_instances[number]) for card in self.cards if number in card.gpu_instances)

    def _compute(self, gpu_instance: Any) -> Any:
        return ctypes.cast(ctypes.c_void_p(_number(gpu_instance)), pynvml.c_nvmlComputeInstance_t)

    def _profile(self, handle: str, key: str, value: int) -> dict[str, Any]:
        for profile in self.find(handle).read("mig", "gpuInstanceProfiles"):
            if profile[key] == value:
                return dict(profile)
        raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)

    def _pointer(self, kind: Any) -> Any:
        self._made += 1
        return ctypes.cast(ctypes.c_void_p(self._made), kind)


def _uuids(card: FakeCard) -> Iterator[str]:
    return (found.uuid for found in card.gpu_instances.values())


def _number(pointer: Any) -> int:
    return int(ctypes.cast(pointer, ctypes.c_void_p).value or 0)
