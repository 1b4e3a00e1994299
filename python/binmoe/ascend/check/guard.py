"""Tensors with guard zones: NaN (integers: a large number) before and after, so that an over-read shows."""

import ctypes
import mmap

import torch

MARGIN_BYTES = 1 << 17
LARGE_BYTES = 1 << 26
MADV_NOHUGEPAGE = 15


def keep_sparse(address, size):
    """Ask for small pages in a large allocation: else the first touch of a row would cost 2 MiB."""
    if size < LARGE_BYTES:
        return
    first = -(-address // mmap.PAGESIZE) * mmap.PAGESIZE
    libc = ctypes.CDLL(None)
    libc.madvise(ctypes.c_void_p(first), ctypes.c_size_t(address + size - first), MADV_NOHUGEPAGE)


def _poison(dtype):
    return float("nan") if dtype.is_floating_point else torch.iinfo(dtype).max // 2 + 1


class Guarded:
    """A tensor that a lowered run uses in place.

    shape, dtype  of the tensor; its memory is untouched, so that a huge one costs only the pages that are written
    tensor        the view between the margins
    """

    def __init__(self, shape, dtype):
        count = 1
        for size in shape:
            count *= size
        margin = MARGIN_BYTES // dtype.itemsize
        self.buffer = torch.empty(count + 2 * margin, dtype=dtype)
        keep_sparse(self.buffer.data_ptr(), self.buffer.numel() * dtype.itemsize)
        self.margins = self.buffer[:margin], self.buffer[margin + count :]
        for part in self.margins:
            part.fill_(_poison(dtype))
        self.tensor = self.buffer[margin : margin + count].view(shape)

    @classmethod
    def of(cls, tensor):
        """A copy of a tensor between guards."""
        guarded = cls(tensor.shape, tensor.dtype)
        guarded.tensor.copy_(tensor)
        return guarded

    @classmethod
    def poisoned(cls, shape, dtype):
        """An output that nobody has written yet."""
        guarded = cls(shape, dtype)
        guarded.tensor.fill_(_poison(dtype))
        return guarded

    def margins_are_clean(self):
        poison = _poison(self.buffer.dtype)
        return all(bool((part.isnan() if poison != poison else part == poison).all()) for part in self.margins)
