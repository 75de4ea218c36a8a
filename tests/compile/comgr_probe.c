/* Asks the HIP runtime's code object manager for the ISA and the kernels of each file named: what the runtime
 * does first with a module. Prints `ISA NAME...` for each. */
#include <amd_comgr/amd_comgr.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#define FIND(name) __typeof__(&name) p_##name = (__typeof__(&name))dlsym(library, #name)

static char text[4096], image[1 << 22];

int main(int argc, char **argv) {
  void *library = dlopen("libamd_comgr.so.3", RTLD_NOW);
  if (!library) return fprintf(stderr, "%s\n", dlerror()), 1;
  FIND(amd_comgr_create_data);
  FIND(amd_comgr_set_data);
  FIND(amd_comgr_get_data_isa_name);
  FIND(amd_comgr_get_data_metadata);
  FIND(amd_comgr_metadata_lookup);
  FIND(amd_comgr_get_metadata_list_size);
  FIND(amd_comgr_index_list_metadata);
  FIND(amd_comgr_get_metadata_string);
  for (int i = 1; i < argc; i++) {
    FILE *file = fopen(argv[i], "rb");
    if (!file) return 2;
    size_t size = fread(image, 1, sizeof image, file), length = sizeof text, count = 0;
    fclose(file);
    amd_comgr_data_t data;
    amd_comgr_metadata_node_t root, kernels, kernel, name;
    if (p_amd_comgr_create_data(AMD_COMGR_DATA_KIND_EXECUTABLE, &data) || p_amd_comgr_set_data(data, size, image) ||
        p_amd_comgr_get_data_isa_name(data, &length, text))
      return 3;
    printf("%s", text);
    if (p_amd_comgr_get_data_metadata(data, &root) || p_amd_comgr_metadata_lookup(root, "amdhsa.kernels", &kernels) ||
        p_amd_comgr_get_metadata_list_size(kernels, &count))
      return 4;
    for (size_t j = 0; j < count; j++) {
      length = sizeof text;
      if (p_amd_comgr_index_list_metadata(kernels, j, &kernel) ||
          p_amd_comgr_metadata_lookup(kernel, ".name", &name) || p_amd_comgr_get_metadata_string(name, &length, text))
        return 5;
      printf(" %s", text);
    }
    printf("\n");
  }
  return 0;
}
