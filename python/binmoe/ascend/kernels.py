"""Triton-Ascend kernels of the five movers. docs/triton_ascend.md gives the rules behind their shape.

    kernel                           arguments (pointers, then int32), constexprs
    binned_gather_kernel             x indices bin_ids bins weights y
                                     num_tokens num_experts expert_capacity hidden_size x_stride y_stride
                                     TOP_K SUB_BLOCK_SIZE BLOCK_X ROW_COPY HAS_WEIGHTS HAS_TAIL
    binned_gather_by_token_kernel    x row_of_assignment bins weights y
                                     num_tokens num_experts expert_capacity hidden_size x_stride y_stride
                                     TOP_K BLOCK_TOKENS SUB_BLOCK_SIZE BLOCK_X HAS_WEIGHTS HAS_TAIL
    binned_scatter_kernel            y row_of_assignment weights out
                                     num_tokens num_expert_rows hidden_size y_stride out_stride
                                     TOP_K BLOCK_TOKENS SUB_BLOCK_SIZE BLOCK_X HAS_WEIGHTS HAS_TAIL
    binned_scatter_wgrad_kernel      y grad row_of_assignment dw
                                     num_tokens num_expert_rows hidden_size y_stride grad_stride
                                     TOP_K BLOCK_TOKENS SUB_BLOCK_SIZE BLOCK_X HAS_TAIL
    binned_scatter_backward_kernel   y grad row_of_assignment bins weights dy dw
                                     num_tokens num_experts expert_capacity hidden_size y_stride grad_stride dy_stride
                                     TOP_K BLOCK_TOKENS SUB_BLOCK_SIZE BLOCK_X HAS_WEIGHTS HAS_TAIL

Rows are f32, bf16 or f16, hidden_size elements long, *_stride elements apart; maps are int32; weights f32, bf16 or f16;
dw likewise. `weights` may be any pointer when HAS_WEIGHTS is false: it is not read. num_tokens, num_experts,
expert_capacity and hidden_size are at least 1. A program walks blocks round robin: the grid is the number of vector
cores, and any grid gives the same bits.

    TOP_K           choices of a token
    BLOCK_TOKENS    tokens that a program takes at a time; their maps and weights are one load
    SUB_BLOCK_SIZE  rows of a tile in UB; in scatter and its gradients the choices of one token, TOP_K or a part
    BLOCK_X         columns of a tile, a multiple of 32 bytes
    ROW_COPY        INDEXED_LOAD, ELEMENT_INSERT or INDEX_SELECT, of full tiles; a tail is always ELEMENT_INSERT
    HAS_WEIGHTS     whether rows are scaled
    HAS_TAIL        whether hidden_size is no multiple of BLOCK_X: without one no tail is compiled
"""

from binmoe.ascend.gather_kernels import binned_gather_by_token_kernel, binned_gather_kernel
from binmoe.ascend.rows import ELEMENT_INSERT, INDEX_SELECT, INDEXED_LOAD
from binmoe.ascend.scatter_kernels import (
    binned_scatter_backward_kernel,
    binned_scatter_kernel,
    binned_scatter_wgrad_kernel,
)

__all__ = [
    "ELEMENT_INSERT",
    "INDEXED_LOAD",
    "INDEX_SELECT",
    "binned_gather_by_token_kernel",
    "binned_gather_kernel",
    "binned_scatter_backward_kernel",
    "binned_scatter_kernel",
    "binned_scatter_wgrad_kernel",
]
