#include "base/npy.h"

#include <string>

#include "base/error.h"

namespace aima::base {
namespace {

constexpr std::size_t header_size = 128;

/// Magic, version, length, then a Python dictionary padded with spaces to a fixed size, so that it can be
/// rewritten.
std::string header(std::int64_t rows, std::int64_t columns) {
  std::string text("\x93NUMPY\x01\x00", 8);
  constexpr std::size_t length = header_size - 10;
  text += static_cast<char>(length & 0xffU);
  text += static_cast<char>(length >> 8);
  text += "{'descr': '<f4', 'fortran_order': False, 'shape': (" + std::to_string(rows) + ", " +
          std::to_string(columns) + "), }";
  text.resize(header_size - 1, ' ');
  return text + '\n';
}

}  // namespace

NpyMatrixWriter::NpyMatrixWriter(const std::filesystem::path& path, std::int64_t columns,
                                 std::string_view option)
    : file_(path, option), columns_(columns) {
  const std::string text = header(0, columns_);
  file_.append(std::as_bytes(std::span(text)));
}

void NpyMatrixWriter::append(std::span<const float> rows) {
  const auto count = static_cast<std::int64_t>(rows.size());
  if (count % columns_ != 0) throw Error({.what = "a partial row was given to the .npy writer"});
  file_.append(std::as_bytes(rows));
  rows_ += count / columns_;
}

void NpyMatrixWriter::commit() {
  const std::string text = header(rows_, columns_);
  file_.rewrite(0, std::as_bytes(std::span(text)));
  file_.commit();
}

}  // namespace aima::base
