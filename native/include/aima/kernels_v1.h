/// The table that `aimabuild` links into libaima-kernels-<target>.so: C, so that both the generated source
/// and the C++ engine include it. Layout changes need a new name (`aima_kernels_v2`), never an edit here.
#ifndef AIMA_KERNELS_V1_H
#define AIMA_KERNELS_V1_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/// "AKN1" in memory order.
#define AIMA_KERNELS_MAGIC UINT32_C(0x314e4b41)

/// What a launch dimension or an integer argument depends on at run time.
enum aima_var_v1 {
  AIMA_VAR_ONE = 0,    ///< the constant 1
  AIMA_VAR_TOKENS = 1  ///< tokens in this pass
};

enum aima_arg_kind_v1 {
  AIMA_ARG_POINTER = 0,  ///< 8-byte device address
  AIMA_ARG_I32 = 1,
  AIMA_ARG_I64 = 2,
  AIMA_ARG_F32 = 3,
  AIMA_ARG_STRUCT = 4,  ///< a by-value block that only `fill` knows
  AIMA_ARG_HIDDEN = 5   ///< a compiler's own argument: zero
};

/// One kernel argument, in the order of the source. Offsets and sizes are bytes in the argument block and
/// were compared with the code object's notes when the table was linked.
typedef struct aima_arg_v1 {
  const char* name;
  uint32_t kind;  ///< enum aima_arg_kind_v1
  uint32_t offset;
  uint32_t size;
  uint32_t align;
  uint32_t divisibility;  ///< the kernel was compiled for values (addresses) that are multiples of this
} aima_arg_v1;

/// Workgroups along one axis: ceil_div(var * mul + add, div).
typedef struct aima_grid_axis_v1 {
  uint32_t var;  ///< enum aima_var_v1
  uint32_t mul;
  uint32_t add;
  uint32_t div;
} aima_grid_axis_v1;

/// A compile-time dimension of the kernel, for example {"n", 8192}.
typedef struct aima_dim_v1 {
  const char* name;
  int64_t value;
} aima_dim_v1;

/// The tensors and sizes of one matrix product E[M,N] = A[M,K] * B[N,K]^T, row-major, strides in elements.
typedef struct aima_gemm_args_v1 {
  const void* a;
  const void* b;
  void* e;
  int64_t m, n, k;
  int64_t stride_a, stride_b, stride_e;
} aima_gemm_args_v1;

/// Host code of a template whose argument block has a library's own layout. `args` is the op's argument
/// struct (gemm: aima_gemm_args_v1). Writes kernarg_size bytes and the grid; 0, or a negative number when the
/// kernel cannot take these arguments. Never throws.
typedef int (*aima_fill_v1)(const void* args, void* kernarg, size_t capacity, uint32_t grid[3]);

typedef struct aima_kernel_v1 {
  const char* id;             ///< "<family>-<shape>-<hash>", unique in the table
  const char* op;             ///< the operation it serves, for example "rms_norm"
  const char* template_name;  ///< for example "triton/rms_norm"
  const char* dtype;
  const char* symbol;  ///< name of the entry in the code object
  const aima_dim_v1* dims;
  uint32_t dim_count;
  uint32_t token_min;  ///< serves passes of token_min..token_max tokens, both included
  uint32_t token_max;
  uint32_t primary;  ///< 1: the recipe's choice for this op and range; 0: an alternative
  const void* image;
  uint64_t image_size;
  uint8_t image_sha256[32];
  uint32_t kernarg_size;
  uint32_t arg_count;
  const aima_arg_v1* args;
  aima_fill_v1 fill;  ///< null: the block is `args` at their offsets, the grid is `grid`
  aima_grid_axis_v1 grid[3];
  uint32_t block[3];
  uint32_t lds_bytes;  ///< dynamic LDS to ask for at launch
  uint32_t wave_size;
} aima_kernel_v1;

typedef struct aima_kernels_table_v1 {
  uint32_t magic;
  uint32_t struct_size;  ///< sizeof(aima_kernels_table_v1)
  uint32_t kernel_size;  ///< sizeof(aima_kernel_v1)
  uint32_t kernel_count;
  const char* target;  ///< for example "gfx1151"
  const char* build;   ///< digest of the plan and the toolchain
  const aima_kernel_v1* kernels;
} aima_kernels_table_v1;

/// The one symbol that a kernels library exports.
extern const aima_kernels_table_v1 aima_kernels_v1;

#ifdef __cplusplus
}
#endif
#endif
