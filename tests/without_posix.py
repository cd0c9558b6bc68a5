"""A process that has only what Python has on Windows, on Linux. Run by test_platforms.py with the folder of a BART.

The packages that Transept uses are loaded first, as they are. Then modules, functions and constants that Windows lacks
go away, and Transept is imported anew.
"""

import ctypes
import importlib
import mmap
import os
import pkgutil
import select
import signal
import socket
import sys
import time

MODULES = ("fcntl", "grp", "posix", "pty", "pwd", "readline", "resource", "syslog", "termios", "tty")
NAMES = {
    os: "MFD_ PRIO_ RTLD_ SCHED_ W chown confstr eventfd fchmod fchown fdatasync fork getegid geteuid getgid getgroups "
    "getloadavg getpgid getpgrp getpriority getresuid getsid getuid memfd mkfifo mknod nice openpty pidfd pipe2 posix_ "
    "pread pwrite register_at_fork sched_ sendfile set_blocking setpriority setsid setuid splice statvfs sync sysconf "
    "ttyname uname wait",
    time: "CLOCK_ clock_ pthread_",
    socket: "AF_UNIX MSG_DONTWAIT send_fds recv_fds SO_REUSEPORT",
    select: "poll POLL epoll EPOLL",
    signal: "SIGHUP SIGKILL SIGUSR SIGCHLD SIGPIPE pthread_ sig",
    mmap: "MAP_ MADV_ PROT_",
}
KEPT = {"SIGINT", "SIGTERM", "signal"}
FIRST_MEMORY = 8  # bytes before the memory's size in Windows' answer


class Kernel32:
    """Windows' library, with the one function that Transept calls."""

    def __init__(self, name: str) -> None:
        assert name == "kernel32"

    def GlobalMemoryStatusEx(self, status: object) -> int:  # noqa: N802
        ctypes.c_uint64.from_buffer(status._obj, FIRST_MEMORY).value = 8 << 30
        return 1


def import_all() -> None:
    import transept

    for found in pkgutil.walk_packages(transept.__path__, "transept."):
        if ".skeleton." not in found.name and not found.name.endswith("__main__"):
            importlib.import_module(found.name)


def take_away() -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "transept"]:
        del sys.modules[name]
    for name in MODULES:
        sys.modules[name] = None  # importing it is an ImportError
    for module, starts in NAMES.items():
        for name in [each for each in dir(module) if each.startswith(tuple(starts.split())) and each not in KEPT]:
            delattr(module, name)
    sys.platform, ctypes.WinDLL = "win32", Kernel32


def generate(directory: str) -> None:
    import transept

    prompt, few = transept.TextPrompt(prompt="to be or not to be"), transept.SamplingParams(max_tokens=4)
    with transept.Engine(directory, device="cpu", dtype="float32") as engine:
        print(*engine.generate([prompt], few)[0].outputs[0].token_ids)


def refuse_ranks(directory: str) -> None:
    import transept

    try:
        transept.Engine(directory, device="cpu", tensor_parallel_size=3)
    except transept.ParameterError as error:
        print(error)


import_all()
generate(sys.argv[1])
take_away()
import_all()
generate(sys.argv[1])
refuse_ranks(sys.argv[1])
