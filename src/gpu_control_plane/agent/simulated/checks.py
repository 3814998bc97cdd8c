"""The checks of a node with simulated cards, which have device files and no driver: the rest is as the backend says."""

from collections.abc import Mapping

from gpu_control_plane.agent.backends.interface import Backend, BackendError
from gpu_control_plane.agent.vendors.interface import CheckOutcome, DriverCheck, VendorChecks, failed, passed


class SimulatedChecks(VendorChecks):
    """The checks of the vendor whose cards are simulated, without its driver."""

    def __init__(self, vendor: VendorChecks) -> None:
        self._vendor = vendor
        self.status_files = vendor.status_files

    def check_driver(self, backend: Backend) -> DriverCheck:
        try:
            backend.open()
            driver = backend.facts().driver
        except BackendError as error:
            return DriverCheck(outcome=failed(f"The simulated driver does not answer: {error}"))
        version = driver.version if driver else None
        return DriverCheck(outcome=passed(f"Driver {version} is loaded and answers."), version=version)

    def check_extras(self) -> Mapping[str, CheckOutcome | None]:
        return self._vendor.check_extras()
