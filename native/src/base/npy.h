/// Writes NumPy's .npy format, version 1.0.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string_view>

#include "base/files.h"

namespace aima::base {

/// A float32 matrix [rows, columns], written row by row; the number of rows is known only at the end.
class NpyMatrixWriter {
 public:
  /// `option` as AtomicFile takes it. `columns` can be told later, with set_columns, before any row.
  explicit NpyMatrixWriter(const std::filesystem::path& path, std::int64_t columns = 1,
                           std::string_view option = {});
  void set_columns(std::int64_t columns) { columns_ = columns; }

  /// `rows` holds whole rows.
  void append(std::span<const float> rows);
  /// Writes the final shape and puts the file in place.
  void commit();

 private:
  AtomicFile file_;
  std::int64_t columns_;
  std::int64_t rows_ = 0;
};

}  // namespace aima::base
