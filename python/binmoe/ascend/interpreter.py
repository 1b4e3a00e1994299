"""What Triton's interpreter lacks for these kernels: the slice operations of Triton-Ascend 3.2.0, with bounds asserted.

Import it after setting TRITON_INTERPRET=1 and before the first launch. Nothing here runs on a device.
"""

import ctypes

import numpy as np
import triton.language as tl
from triton.runtime import interpreter

from binmoe.ascend import rows


def _integer(value):
    if isinstance(value, tl.constexpr):
        value = value.value
    return int(value.handle.data.reshape(-1)[0]) if isinstance(value, tl.tensor) else int(value)


def _tensor(data, element_type):
    """A scalar for data without dimensions, else a block."""
    kind = tl.block_type(element_type, list(data.shape)) if data.ndim else element_type
    return tl.tensor(interpreter.TensorHandle(data if data.ndim else data.reshape(1), element_type), kind)


def _window(operation, shape, offsets, sizes, strides):
    begins, counts, steps = ([_integer(v) for v in values] for values in (offsets, sizes, strides))
    if not len(begins) == len(counts) == len(steps) == len(shape):
        raise IndexError(f"{operation}: offsets, sizes and strides must have {len(shape)} entries")
    for axis, (begin, count, step, length) in enumerate(zip(begins, counts, steps, shape, strict=True)):
        if begin < 0 or count < 1 or step < 1 or begin + (count - 1) * step >= length:
            raise IndexError(
                f"{operation} leaves the tile: axis {axis}, offset {begin}, size {count}, stride {step} of {length}"
            )
    return tuple(slice(b, b + (n - 1) * s + 1, s) for b, n, s in zip(begins, counts, steps, strict=True))


def insert_slice(ful, sub, offsets, sizes, strides):
    data = ful.handle.data.copy()
    window = _window("insert_slice", data.shape, offsets, sizes, strides)
    if data[window].shape != sub.handle.data.shape or ful.dtype.scalar != sub.dtype.scalar:
        raise TypeError(f"insert_slice of {sub.handle.data.shape} {sub.dtype} into {data[window].shape} {ful.dtype}")
    data[window] = sub.handle.data
    return _tensor(data, ful.dtype.scalar)


def extract_slice(ful, offsets, sizes, strides):
    window = _window("extract_slice", ful.handle.data.shape, offsets, sizes, strides)
    return _tensor(ful.handle.data[window].copy(), ful.dtype.scalar)


def get_element(src, indice):
    index = tuple(_integer(i) for i in indice)
    shape = src.handle.data.shape
    if len(index) != len(shape) or not all(0 <= i < n for i, n in zip(index, shape, strict=True)):
        raise IndexError(f"get_element {index} is outside {shape}")
    return _tensor(np.array(src.handle.data[index]), src.dtype.scalar)


def index_select_simd(src, dim, index, src_shape, src_offset, read_shape):
    """Rows of a matrix in memory by index, some columns of each. The compiler cuts nothing off: a read past a row is an
    error here."""
    num_rows, stride = _integer(src_shape[0]), _integer(src_shape[1])
    column, count = _integer(src_offset[1]), _integer(read_shape[1])
    if _integer(dim) != 0 or len(src_shape) != 2:
        raise NotImplementedError("index_select_simd: only rows of a matrix are selected here")
    if column < 0 or column + count > stride:
        raise IndexError(f"index_select_simd reads columns {column} to {column + count} of rows of {stride}")
    element_type = src.dtype.element_ty
    dtype = np.dtype(interpreter._get_np_dtype(element_type))
    base = int(src.handle.data.reshape(-1)[0])
    out = np.empty((index.handle.data.size, count), dtype)
    for i, row in enumerate(index.handle.data.reshape(-1)):
        if not 0 <= row < num_rows:
            raise IndexError(f"index_select_simd takes row {row} of {num_rows}")
        place = base + (int(row) * stride + column) * dtype.itemsize
        out[i] = np.frombuffer((ctypes.c_char * (count * dtype.itemsize)).from_address(place), dtype)
    return _tensor(out, element_type)


def _patch_index():
    """numpy 2.4 makes an integer of no array with a dimension; the interpreter's range() needs one."""
    patch_tensor = interpreter._patch_lang_tensor

    def patched(tensor):
        patch_tensor(tensor)
        tensor.__index__ = lambda self: int(self.handle.data.reshape(-1)[0])

    interpreter._patch_lang_tensor = patched


def _patch_once():
    """The interpreter patches the whole language at each call of a device function; once a module is enough."""
    patch, modules = interpreter._patch_lang, set()

    def patched(function):
        if function.__module__ not in modules:
            patch(function)
            modules.add(function.__module__)

    interpreter._patch_lang = patched


def install():
    """Give the interpreter the operations. Safe to call again."""
    if rows.extension.insert_slice is insert_slice:
        return
    for function in (insert_slice, extract_slice, get_element):
        setattr(rows.extension, function.__name__, function)
    rows.index_library.index_select_simd = index_select_simd
    _patch_index()
    _patch_once()
