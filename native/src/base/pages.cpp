#include "base/pages.h"

#include <sys/mman.h>

#include <cerrno>
#include <string>
#include <utility>

#include "base/error.h"

namespace aima::base {
namespace {

constexpr std::uint64_t huge_page = std::uint64_t{2} << 20;

}  // namespace

Pages::Pages(std::uint64_t bytes, const char* purpose) : size_(bytes) {
  if (bytes == 0) return;
  const std::uint64_t rounded = (bytes + huge_page - 1) / huge_page * huge_page;
  mapped_ = rounded + huge_page;
  mapping_ =
      ::mmap(nullptr, mapped_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapping_ == MAP_FAILED) {
    mapping_ = nullptr;
    throw_system(
        "memory for " + std::string(purpose) + " cannot be taken (" + std::to_string(bytes) + " bytes)", {},
        errno);
  }
  const auto address = reinterpret_cast<std::uintptr_t>(mapping_);
  const std::uint64_t skip = (huge_page - address % huge_page) % huge_page;
  data_ = static_cast<std::byte*>(mapping_) + skip;
  ::madvise(data_, rounded, MADV_HUGEPAGE);  // refused where huge pages are off: small ones do
}

Pages::Pages(Pages&& other) noexcept
    : mapping_(std::exchange(other.mapping_, nullptr)),
      mapped_(std::exchange(other.mapped_, 0)),
      data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)) {}

Pages& Pages::operator=(Pages&& other) noexcept {
  std::swap(mapping_, other.mapping_);
  std::swap(mapped_, other.mapped_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

Pages::~Pages() {
  if (mapping_ != nullptr) ::munmap(mapping_, mapped_);
}

}  // namespace aima::base
