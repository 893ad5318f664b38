"""Reading a safetensors file: a length of eight bytes, a header in JSON, and the numbers, one tensor after another."""

import json
import math
from pathlib import Path

import torch
from torch import Tensor


class SafetensorError(Exception):
    """What is no safetensors file, or is cut short."""


class safe_open:
    """An open safetensors file: its names, and a tensor by its name."""

    kinds = {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16,
             "I64": torch.int64, "I32": torch.int32, "I16": torch.int16, "I8": torch.int8,
             "U8": torch.uint8, "BOOL": torch.bool}

    def __init__(self, file: str | Path, framework: str = "pt", device: str = "cpu"):
        with open(file, "rb") as opened:
            try:
                self._header = json.loads(opened.read(int.from_bytes(opened.read(8), "little")))
                self._header.pop("__metadata__", None)
            except (ValueError, OverflowError, MemoryError, AttributeError) as error:
                raise SafetensorError(str(error)) from error
            start = opened.tell()
        self._device = device
        ends = [entry["data_offsets"][1] for entry in self._header.values()]
        if Path(file).stat().st_size != start + max(ends, default=0):
            raise SafetensorError("it is not as long as its header says")
        # Mapped: a page of the file is read when its numbers are first looked at.
        self._bytes = torch.from_file(str(file), size=start + max(ends, default=0), dtype=torch.uint8)[start:]

    def __enter__(self):
        return self

    def __exit__(self, *error):
        pass

    def keys(self) -> list[str]:
        return list(self._header)

    def get_tensor(self, name: str) -> Tensor:
        entry = self._header[name]
        kind, shape, (begin, end) = self.kinds[entry["dtype"]], entry["shape"], entry["data_offsets"]
        if end - begin != math.prod(shape) * kind.itemsize:
            raise SafetensorError(f"{name} has not as many bytes as its shape says")
        numbers = self._bytes[begin:end]
        aligned = numbers.data_ptr() % kind.itemsize == 0
        return (numbers if aligned else numbers.clone()).view(kind).reshape(shape).to(self._device)
