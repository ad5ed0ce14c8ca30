#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The C interface from Python with nothing but its standard library: decode one token of two sequences that
share a paged float32 cache, on threads of Python's own, and compare with the same attention in plain Python.

    decode.py LIBRARY        path of liblathe_c.so

Output (target and error differ between machines):
    lathe 0.1.0, best target avx3_zen4
    2 sequences, 4 heads: max |out - expected| = 4.8e-07 (good: below 1e-5)
    a refusal reads: stale plan: plan must be made for these lengths, positions, windows, masks, page and list
    sizes
"""

import array
import concurrent.futures
import ctypes as c
import math
import sys

FLOAT32, INT32 = 0, 16  # lathe_dtype
LATENT_FLOAT32 = 0  # lathe_format

TASK = c.CFUNCTYPE(None, c.c_void_p, c.c_size_t)
RUN = c.CFUNCTYPE(None, c.c_void_p, c.c_size_t, TASK, c.c_void_p)


class Tensor(c.Structure):
    _fields_ = [("data", c.c_void_p), ("dtype", c.c_int32), ("rank", c.c_int32),
                ("extent", c.c_int64 * 4), ("stride", c.c_int64 * 4)]


class Buffer(c.Structure):
    _fields_ = [("data", c.c_void_p), ("bytes", c.c_size_t)]


class Executor(c.Structure):
    _fields_ = [("ctx", c.c_void_p), ("num_workers", c.c_size_t), ("run", RUN)]


class LsePolicy(c.Structure):
    _fields_ = [("base2", c.c_int32), ("has_empty", c.c_int32), ("empty", c.c_float)]


class Sized(c.Structure):
    """A struct that may grow: struct_size says how much of it is given. The rest of an object is zero."""

    def __init__(self, **fields):
        super().__init__(struct_size=c.sizeof(self), **fields)


class PagedCache(Sized):
    _fields_ = [("struct_size", c.c_size_t), ("data", c.c_void_p), ("format", c.c_int32), ("scale", c.c_float),
                ("num_blocks", c.c_int64), ("block_size", c.c_int64), ("block_stride", c.c_int64),
                ("row_stride", c.c_int64)]


class KeySet(Sized):  # the fields up to seq_lens; the library takes the others as not given
    _fields_ = [("struct_size", c.c_size_t), ("cache", c.POINTER(PagedCache)), ("block_table", Tensor),
                ("seq_lens", Tensor)]


class Shape(Sized):
    _fields_ = [("struct_size", c.c_size_t), ("num_heads", c.c_int64), ("kv_lora_rank", c.c_int64),
                ("qk_rope_head_dim", c.c_int64)]


class Options(Sized):
    _fields_ = [("struct_size", c.c_size_t), ("softmax_scale", c.c_float), ("no_causal", c.c_int32),
                ("precision", c.c_int32), ("target", c.c_int32),
                ("lse_policy", LsePolicy), ("no_check_indices", c.c_int32)]


class Args(Sized):
    _fields_ = [("struct_size", c.c_size_t), ("q", Tensor), ("q_nope", Tensor), ("q_pe", Tensor),
                ("query_start_loc", Tensor), ("keys", c.POINTER(KeySet)), ("extra_keys", c.POINTER(KeySet)),
                ("attn_sink", Tensor), ("out_rope", c.c_void_p), ("positions", Tensor), ("out", Tensor),
                ("lse", Tensor)]


class Limits(Sized):
    _fields_ = [("struct_size", c.c_size_t), ("max_num_seqs", c.c_int64), ("max_num_tokens", c.c_int64),
                ("max_num_keys", c.c_int64), ("num_workers", c.c_size_t)]


class Sizes(Sized):
    _fields_ = [("struct_size", c.c_size_t), ("plan_bytes", c.c_size_t), ("workspace_bytes", c.c_size_t)]


class TargetInfo(Sized):
    _fields_ = [("struct_size", c.c_size_t), ("target", c.c_int32), ("compiled", c.c_int32),
                ("runnable", c.c_int32), ("native_bf16", c.c_int32), ("name", c.c_char_p), ("reason", c.c_char_p)]


def packed(data, *extents):
    """A dense tensor over an array.array of floats or 32-bit integers, which has to stay alive."""
    strides = [math.prod(extents[i + 1:]) for i in range(len(extents))]
    return Tensor(data.buffer_info()[0], FLOAT32 if data.typecode == "f" else INT32, len(extents),
                  (c.c_int64 * 4)(*extents), (c.c_int64 * 4)(*strides))


def zeros(n):
    return array.array("f", bytes(4 * n))


class Lathe:
    def __init__(self, path):
        self.lathe = c.CDLL(path)
        self.lathe.lathe_num_targets.restype = c.c_size_t

    def __call__(self, name, *arguments):
        """Calls a function that takes a message last; a refusal is an exception."""
        message = c.create_string_buffer(320)
        if getattr(self.lathe, name)(*arguments, message) != 0:
            raise ValueError(message.value.decode())

    def hello(self):
        version = [c.c_int32() for _ in range(3)]
        self.lathe.lathe_version(*map(c.byref, version))
        info = TargetInfo()
        for i in range(self.lathe.lathe_num_targets()):
            self("lathe_get_target", c.c_size_t(i), c.byref(info))
            if info.target == self.lathe.lathe_best_target():
                break
        print(f"lathe {'.'.join(str(v.value) for v in version)}, best target {info.name.decode()}")


def expected_head(q, rows, rank, scale):
    weights = [math.exp(scale * sum(a * b for a, b in zip(q, row))) for row in rows]
    return [sum(w * row[i] for w, row in zip(weights, rows)) / sum(weights) for i in range(rank)]


def main():
    lathe = Lathe(sys.argv[1])
    lathe.hello()

    heads, rank, rope, block_size, num_blocks = 4, 32, 8, 4, 6
    width, scale = rank + rope, 0.25
    block_table = array.array("i", [5, 0, 3, 1, -1, -1])
    seq_lens = array.array("i", [11, 4])
    cache = array.array("f", (math.sin(0.7 * i) for i in range(num_blocks * block_size * width)))
    q = array.array("f", (math.cos(0.3 * i) for i in range(2 * heads * width)))
    out, lse = zeros(2 * heads * rank), zeros(2 * heads)

    pages = PagedCache(data=cache.buffer_info()[0], format=LATENT_FLOAT32, num_blocks=num_blocks,
                       block_size=block_size, block_stride=4 * block_size * width, row_stride=4 * width)
    keys = KeySet(cache=c.pointer(pages), block_table=packed(block_table, 2, 3), seq_lens=packed(seq_lens, 2))
    args = Args(q=packed(q, 2, heads, width), keys=c.pointer(keys), out=packed(out, 2, heads, rank),
                lse=packed(lse, 2, heads))
    shape = Shape(num_heads=heads, kv_lora_rank=rank, qk_rope_head_dim=rope)
    options = Options(softmax_scale=scale)
    workers = 2
    sizes = Sizes()
    lathe("lathe_mla_decode_sizes", c.byref(shape), c.byref(options),
          c.byref(Limits(max_num_seqs=2, max_num_tokens=2, max_num_keys=11, num_workers=workers)), c.byref(sizes))
    plan_memory = c.create_string_buffer(sizes.plan_bytes)
    workspace = c.create_string_buffer(sizes.workspace_bytes)
    plan = c.c_void_p()
    lathe("lathe_plan_mla_decode", c.byref(shape), c.byref(options), c.byref(args), c.c_size_t(workers),
          Buffer(c.addressof(plan_memory), sizes.plan_bytes), c.byref(plan))

    with concurrent.futures.ThreadPoolExecutor(workers) as pool:
        run = RUN(lambda ctx, num_tasks, task, arg: list(pool.map(lambda i: task(arg, i), range(num_tasks))) and None)
        executor = Executor(None, workers, run)
        layer = (plan, c.byref(args), Buffer(c.addressof(workspace), sizes.workspace_bytes), c.byref(executor))
        lathe("lathe_run_mla_decode", *layer)

        error = 0.0
        for seq in range(2):
            blocks = block_table[3 * seq:3 * seq + 3]
            slots = [blocks[i // block_size] * block_size + i % block_size for i in range(seq_lens[seq])]
            rows = [cache[slot * width:(slot + 1) * width] for slot in slots]
            for row in range(seq * heads, (seq + 1) * heads):
                head = expected_head(q[row * width:(row + 1) * width], rows, rank, scale)
                error = max([error] + [abs(a - b) for a, b in zip(head, out[row * rank:(row + 1) * rank])])
        print(f"2 sequences, {heads} heads: max |out - expected| = {error:.1e} (good: below 1e-5)")

        seq_lens[1] = 3
        try:
            lathe("lathe_run_mla_decode", *layer)
        except ValueError as refusal:
            print("a refusal reads:", refusal)
            return 0 if error < 1e-5 else 1
    return 1


if __name__ == "__main__":
    sys.exit(main())
