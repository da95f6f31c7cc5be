#include <cstddef>

namespace c10 {
int allocate(void* block, std::size_t bytes);
}

int main() {
  int block = 0;
  return c10::allocate(&block, sizeof block);
}
