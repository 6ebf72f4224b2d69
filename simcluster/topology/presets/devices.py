"""Devices that people own, with the source of every number.

This file is a table. Every number is what software achieves, not the nominal figure. A rate is that
of a large fp32 matrix product; a power is that of the whole machine at the wall. If a number was
not measured, *source* says "estimate" and how the estimate was made. Unknown numbers are omitted.
Better numbers belong in the topology file, or come from `simcluster calibrate`.
"""

from __future__ import annotations

from simcluster.topology.model.device import NOTHING_KEPT, Accelerator, Device, Reserve
from simcluster.units import parse_bandwidth, parse_latency, parse_power, parse_rate, parse_size

_Sourced = tuple[str, str, str]
"""(number, number, source of both)."""

# Huebner, Hu, Peng, Markidis: Apple vs. Oranges: Evaluating the Apple Silicon M-Series SoCs for HPC
# Performance and Efficiency, 2025, arXiv:2502.05317.
_M4_MEASURED = "GPU, measured: 2.9 TFLOP/s fp32 matrix product and 103 GB/s STREAM, arXiv:2502.05317"
_TWO_THIRDS = "estimate: two thirds of that, about what the M4 was measured to reach (arXiv:2502.05317)"
_MEMORY = "memory estimate: 0.86 of Apple's figure, as the M4 reaches 103 of 120 GB/s"

_METAL = Reserve(share=2 / 3, large_share=3 / 4, large_bytes=36 * 10**9)
_OF_METAL = (
    "usable memory: by Metal's default a process may wire two thirds of up to 32 GB, three quarters of 36 GB or more "
    "(recommendedMaxWorkingSetSize, as llama.cpp prints it; iogpu.wired_limit_mb changes it)"
)

_APPLE = "by Apple for the whole machine, idle and at most (support.apple.com/103253)"

# An overhead is the launch cost of a piece of work in a framework, the launch cost of each of its
# operators, and the source of both. For small networks with batch size 1, time against depth is a
# line that starts at 40 us and rises by 5 us per operator.
_X86_OVERHEAD = (
    "40 us",
    "5 us",
    "overhead measured: gradients of networks of 11 to 101 operators, PyTorch 2.13 on one core of an AMD EPYC 9004",
)
# PyTorch sends every operator through MPSGraph, which takes this time even for a tiny operator.
_MPS_OVERHEAD = (
    "0 us",
    "20 us",
    "overhead of an operator: its dispatch through MPS by PyTorch, measured on an M1 Pro (pytorch issue 148219)",
)


def _slower_than_x86(factor: int, why: str) -> _Sourced:
    return f"{factor * 40} us", f"{factor * 5} us", f"overhead estimate: {factor} times the x86-laptop's, {why}"


# Philip Turner's gist 3bda14e876a635e73745c42f2eb240c8: Float32 products on the matrix units of the CPU.
_M1_MAX = "the 2.0 TFLOP/s that the two units of an M1 Max reach in a product of 1280, measured (gist 3bda14e8)"


def _matrix_units(GHz: float, units: int = 1) -> str:
    """Return the source, in words, of the rate of a CPU with *units* matrix units at *GHz*."""
    words = "its matrix unit; estimate: half of " if units == 1 else "its two matrix units; estimate: "
    faster = f", times {GHz:g}/3.2 for the clock" if GHz != 3.2 else ""
    return f"CPU, {words}{_M1_MAX}{faster}"


_AS_X86 = _slower_than_x86(1, "whose single core is about as fast")


def _device(
    numbers: str,
    source: str,
    overhead: _Sourced,
    power: _Sourced | None = None,
    accelerator: Accelerator | None = None,
    accelerator_source: str = "",
    kept: tuple[Reserve, str] = (NOTHING_KEPT, ""),
    threads: int = 1,
) -> Device:
    """Return the device with *numbers* "NAME: RATE, MEMORY BANDWIDTH, MEMORY" for its CPU.

    *power* is measured at the wall, idle and under load. *kept* is the memory that the system keeps
    from processes. *threads* is the number of CPU threads that together reach the rate.
    """
    name, _, sizes = numbers.partition(": ")
    flops, memory_bandwidth, memory = sizes.split(", ")
    work, operator, overhead_source = overhead
    idle, busy, power_source = power or ("", "", "")
    reserve, reserve_source = kept
    sources = [source, overhead_source, *([accelerator_source] if accelerator else [])]
    sources += [reserve_source] if reserve_source else []
    return Device(
        name,
        parse_rate(flops),
        parse_bandwidth(memory_bandwidth),
        parse_size(memory),
        source="; ".join([*sources, *([f"power {power_source}"] if power else [])]),
        work_overhead_s=parse_latency(work),
        operator_overhead_s=parse_latency(operator),
        power_idle_W=parse_power(idle) if power else None,
        power_busy_W=parse_power(busy) if power else None,
        accelerator=accelerator,
        reserve=reserve,
        threads=threads,
    )


def _linux(kept: str, why: str) -> tuple[Reserve, str]:
    """Return (the memory that a Linux system keeps from processes, the source of the number)."""
    return Reserve(parse_size(kept)), f"usable memory estimate: all but {kept}, {why}"


def _mac(numbers: str, cpu: str, gpu: str, power: _Sourced | None = None, units: int = 1) -> Device:
    """Return a Mac with *numbers* as in `_device`, except that the GPU's rate follows the CPU's.

    *cpu* and *gpu* are the sources of the rates. Each of the CPU's matrix *units* needs a thread.
    """
    name, _, sizes = numbers.partition(": ")
    flops, gpu_flops, memory_bandwidth, memory = sizes.split(", ")
    work, operator, overhead_source = _MPS_OVERHEAD
    rates = parse_rate(gpu_flops), parse_bandwidth(memory_bandwidth)
    accelerator = Accelerator(
        "mps", *rates, work_overhead_s=parse_latency(work), operator_overhead_s=parse_latency(operator)
    )
    about = f"{gpu}; {overhead_source}"
    about_cpu = f"{name}: {flops}, {memory_bandwidth}, {memory}"
    return _device(about_cpu, cpu, _AS_X86, power, accelerator, about, (_METAL, _OF_METAL), units)


_PI_OS = _linux("500 MB", "for Raspberry Pi OS with its desktop")

_DEVICES = [
    _mac(
        "mac-mini-m1: 1 TFLOP/s, 1.73 TFLOP/s, 59 GB/s, 16 GB",
        _matrix_units(3.2),
        f"GPU of 8 cores, 2.6 TFLOP/s peak by Apple; {_TWO_THIRDS}; {_MEMORY} (68.3 GB/s)",
        power=("6.8 W", "39 W", _APPLE),
    ),
    _mac(
        "mac-mini-m2: 1.09 TFLOP/s, 2.4 TFLOP/s, 86 GB/s, 16 GB",
        _matrix_units(3.49),
        f"GPU of 10 cores, 3.6 TFLOP/s peak by Apple; {_TWO_THIRDS}; {_MEMORY} (100 GB/s)",
        power=("7 W", "50 W", _APPLE),
    ),
    _mac(
        "mac-mini-m2-pro: 2.18 TFLOP/s, 3.84 TFLOP/s, 172 GB/s, 16 GB",
        _matrix_units(3.49, 2),
        "GPU of 16 cores; estimate: 1.6 times the mac-mini-m2 of 10 cores of the same generation; "
        f"{_MEMORY} (200 GB/s)",
        power=("7 W", "100 W", _APPLE),
        units=2,
    ),
    _mac(
        "mac-mini-m4: 1.38 TFLOP/s, 2.9 TFLOP/s, 103 GB/s, 16 GB",
        _matrix_units(4.4),
        _M4_MEASURED,
        power=(
            "4 W",
            "39.6 W",
            "idle by Apple (support.apple.com/103253); busy measured with HPL on all CPU cores, which "
            "stands in for the GPU (geerlingguy/top500-benchmark issue 47)",
        ),
    ),
    _mac(
        "mac-mini-m4-pro: 2.81 TFLOP/s, 4.64 TFLOP/s, 235 GB/s, 24 GB",
        _matrix_units(4.5, 2),
        f"GPU of 16 cores; estimate: 1.6 times the measured M4 of 10 cores (arXiv:2502.05317); {_MEMORY} (273 GB/s)",
        power=("5 W", "140 W", _APPLE),
        units=2,
    ),
    _mac(
        "macbook-air-m1: 1 TFLOP/s, 1.51 TFLOP/s, 59 GB/s, 8 GB",
        _matrix_units(3.2),
        f"GPU of 7 cores; estimate: 7/8 of the mac-mini-m1; {_MEMORY} (68.3 GB/s)",
    ),
    _mac(
        "macbook-air-m2: 1.09 TFLOP/s, 1.92 TFLOP/s, 86 GB/s, 8 GB",
        _matrix_units(3.49),
        f"GPU of 8 cores; estimate: 8/10 of the mac-mini-m2; {_MEMORY} (100 GB/s)",
    ),
    _mac(
        "macbook-air-m3: 1.27 TFLOP/s, 1.88 TFLOP/s, 86 GB/s, 8 GB",
        _matrix_units(4.05),
        f"GPU of 8 cores; estimate: 8/10 of the macbook-pro-m3; {_MEMORY} (100 GB/s)",
    ),
    _mac(
        "macbook-pro-m3: 1.27 TFLOP/s, 2.35 TFLOP/s, 86 GB/s, 16 GB",
        _matrix_units(4.05),
        "GPU of 10 cores, 3.53 TFLOP/s peak (estimate: 1280 lanes x 2 x 1.38 GHz); "
        f"{_TWO_THIRDS}; {_MEMORY} (100 GB/s)",
    ),
    _mac(
        "macbook-pro-m4: 1.38 TFLOP/s, 2.9 TFLOP/s, 103 GB/s, 16 GB",
        _matrix_units(4.4),
        f"the chip of the mac-mini-m4, with a fan as well: {_M4_MEASURED}",
    ),
    _device(
        "raspberry-pi-4: 22 GFLOP/s, 5.5 GB/s, 4 GB",
        "CPU, 4 x Cortex-A72; estimate: twice the 11.4 GFLOP/s fp64 HPL measured on the Compute Module 4 "
        "(geerlingguy/top500-benchmark issue 33), as a vector holds twice as many fp32; memory 5.56 GB/s "
        "STREAM, measured (sci-pi.org.uk/bench/stream.html)",
        _slower_than_x86(7, "about the ratio of their single cores"),
        ("2.7 W", "6.4 W", "measured, idle and with four busy cores (pidramble.com/wiki/benchmarks/power-consumption)"),
        kept=_PI_OS,
        threads=4,
    ),
    _device(
        "raspberry-pi-5: 60 GFLOP/s, 10 GB/s, 8 GB",
        "CPU, 4 x Cortex-A76; estimate: twice the 30.2 GFLOP/s fp64 HPL measured at 2.4 GHz "
        "(geerlingguy/top500-benchmark issue 18); memory estimate: 0.6 of LPDDR4X-4267 on 32 bits, 17.1 GB/s",
        _slower_than_x86(3, "about the ratio of their single cores"),
        (
            "3.3 W",
            "11 W",
            "idle measured, 0.65 A at 5.1 V (iiab issue 4050); busy measured with HPL "
            "(geerlingguy/top500-benchmark issue 18)",
        ),
        kept=_PI_OS,
        threads=4,
    ),
    _device(
        "jetson-orin-nano: 56 GFLOP/s, 34 GB/s, 8 GB",
        "CPU, 6 x Cortex-A78AE x 16 x 1.5 GHz = 144 GFLOP/s peak; estimate: 0.39 of that, as the raspberry-pi-5 "
        "reaches; memory estimate: half of NVIDIA's 68 GB/s",
        _slower_than_x86(3, "as for the raspberry-pi-5, whose CPU is like this one"),
        None,
        Accelerator(
            "cuda",
            parse_rate("853 GFLOP/s"),
            parse_bandwidth("54 GB/s"),
            work_overhead_s=parse_latency("120 us"),
            operator_overhead_s=parse_latency("15 us"),
        ),
        "GPU, 1024 CUDA cores x 2 x 625 MHz = 1.28 TFLOP/s peak; estimate: two thirds of that, as the M4's GPU "
        "reaches; memory estimate: 0.8 of NVIDIA's 68 GB/s; overhead as on the CPU, which starts the GPU's kernels",
        _linux("1.5 GB", "for JetPack with its desktop"),
        threads=6,
    ),
    _device(
        "x86-laptop: 300 GFLOP/s, 38 GB/s, 16 GB",
        "CPU, 6 cores with AVX2 at 2.6 GHz under load: 6 x 32 x 2.6 = 499 GFLOP/s peak; estimate: 0.6 "
        "of that; memory estimate: 0.75 of dual-channel DDR4-3200, 51.2 GB/s",
        _X86_OVERHEAD,
        kept=_linux("1.5 GB", "for Linux with a desktop"),
        threads=6,
    ),
]

DEVICES: dict[str, Device] = {device.name: device for device in _DEVICES}
