/* The library stays loaded: a client's I/O thread may still end in it. usage: .. */
#include <dlfcn.h>
#include <stdio.h>

int main(void) {
  void *library = dlopen("libredbolt.so", RTLD_NOW);
  if (library == NULL || dlsym(library, "redbolt_client_free") == NULL || dlclose(library) != 0) {
    fprintf(stderr, "%s\n", dlerror());
    return 1;
  }
  if (dlopen("libredbolt.so", RTLD_NOW | RTLD_NOLOAD) == NULL) {
    fprintf(stderr, "dlclose took the code away\n");
    return 1;
  }
  return 0;
}
