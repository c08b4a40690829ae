"""What this machine is: its GPU, driver and processor, without importing torch.

The GPU is asked for through the driver's own library, as every CUDA program does, so that a
torch that cannot see a GPU is told apart from a machine that has none. Run in a worker process:
a broken driver may hang or crash. Nothing here names the host or the time.
"""

import ctypes
import platform
import re

CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR = 75
CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR = 76
LIMIT = 60
ISOLATED = True
NO_DEVICE = {"gpu": None, "sm": None, "count": 0, "driver": None, "driver_cuda": None, "no_gpu": "the machine was not asked"}


class DriverError(Exception):
    """The CUDA driver is missing or refuses to start."""


def run(unit, job):
    """The result's "device" holds what is known; "no_gpu" says why there is none."""
    device = dict(NO_DEVICE, driver=driver_version(), cpu=processor(), machine=platform.machine())
    try:
        device.update(gpu(), no_gpu=None)
    except DriverError as error:
        device["no_gpu"] = str(error)
    return {"name": unit, "status": "passed", "device": device}


def gpu():
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        if "libcuda.so.1: cannot open shared object file" in str(error):
            raise DriverError("no GPU: the driver's libcuda.so.1 is not here") from error
        raise DriverError("no GPU: the driver does not load: {}".format(error)) from error

    def call(function, *arguments):
        status = getattr(driver, function)(*arguments)
        if status != 0:
            text = ctypes.c_char_p()
            driver.cuGetErrorName(status, ctypes.byref(text))
            name = text.value.decode() if text.value else "error"
            raise DriverError("no GPU: the driver's {} answers {} ({})".format(function, name, status))

    count, device, version = ctypes.c_int(), ctypes.c_int(), ctypes.c_int()
    major, minor = ctypes.c_int(), ctypes.c_int()
    name = ctypes.create_string_buffer(256)
    call("cuInit", 0)
    call("cuDeviceGetCount", ctypes.byref(count))
    if count.value == 0:
        raise DriverError("no GPU: the driver lists none")
    call("cuDriverGetVersion", ctypes.byref(version))
    call("cuDeviceGet", ctypes.byref(device), 0)
    call("cuDeviceGetName", name, len(name), device)
    call("cuDeviceGetAttribute", ctypes.byref(major), CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device)
    call("cuDeviceGetAttribute", ctypes.byref(minor), CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device)
    return {
        "gpu": name.value.decode("utf-8", "replace"),
        "sm": "{}.{}".format(major.value, minor.value),
        "count": count.value,
        "driver_cuda": "{}.{}".format(version.value // 1000, version.value % 1000 // 10),
    }


def driver_version():
    """The kernel module's version, from NVML or the kernel's own files."""
    try:
        nvml = ctypes.CDLL("libnvidia-ml.so.1")
        text = ctypes.create_string_buffer(96)
        if nvml.nvmlInit_v2() == 0 and nvml.nvmlSystemGetDriverVersion(text, len(text)) == 0:
            return text.value.decode("ascii", "replace")
    except (OSError, AttributeError):
        pass  # not every machine with a GPU has NVML (Jetson before JetPack 7 has none)
    for path in ("/sys/module/nvidia/version", "/proc/driver/nvidia/version"):
        found = re.search(r"\b\d{3,}\.\d+(\.\d+)?\b", first_line(path))
        if found:
            return found.group()
    return None


def processor():
    """The processor's name as the kernel gives it, else its architecture."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
            for line in file:
                key, _, value = line.partition(":")
                if key.strip() in ("model name", "Model") and value.strip():
                    return value.strip()
    except OSError:
        pass
    return platform.machine()


def first_line(path):
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.readline()
    except OSError:
        return ""
