/// A kernels library with two kernels. Macros spoil it: MAGIC, KERNEL_SIZE, NO_IMAGE.
#include "aima/kernels_v1.h"

#ifndef MAGIC
#define MAGIC AIMA_KERNELS_MAGIC
#endif
#ifndef KERNEL_SIZE
#define KERNEL_SIZE sizeof(aima_kernel_v1)
#endif
#ifdef NO_IMAGE
#define IMAGE 0
#else
#define IMAGE "image"
#endif

static const aima_kernel_v1 kernels[] = {
    {.id = "one", .op = "gemm", .template_name = "triton/gemm", .dtype = "bf16", .symbol = "s", .token_min = 1,
     .token_max = 64, .primary = 1, .image = "image", .image_size = 5, .kernarg_size = 64},
    {.id = "two", .op = "rms_norm", .template_name = "triton/rms_norm", .dtype = "bf16", .symbol = "t",
     .token_min = 1, .token_max = 8192, .image = IMAGE, .image_size = 5, .kernarg_size = 40},
};

__attribute__((visibility("default"))) const aima_kernels_table_v1 aima_kernels_v1 = {
    MAGIC, sizeof(aima_kernels_table_v1), KERNEL_SIZE, 2, "gfx1151", "0123", kernels};
