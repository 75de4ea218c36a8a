#include "model/published.h"

#include <algorithm>
#include <system_error>

#include "base/error.h"
#include "base/files.h"

namespace aima::model {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t text_limit = std::size_t{16} << 20;
constexpr std::size_t digits = 64;

/// In lower case, or nothing when it is no SHA-256. (Small files have git's SHA-1 as their tag: 40 digits.)
std::optional<std::string> as_sha256(std::string_view text) {
  if (text.size() != digits) return std::nullopt;
  std::string hex(text);
  for (char& c : hex) {
    if (c >= 'A' && c <= 'F') c = static_cast<char>(c - 'A' + 'a');
    if (!((c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'))) return std::nullopt;
  }
  return hex;
}

/// The line from `text`, which moves behind it; without "\n" or "\r\n".
std::string_view take_line(std::string_view& text) {
  const std::size_t end = std::min(text.find('\n'), text.size());
  std::string_view line = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  if (line.ends_with('\r')) line.remove_suffix(1);
  return line;
}

std::optional<PublishedHash> from_metadata(const fs::path& path) {
  std::error_code ignored;
  if (!fs::exists(path, ignored)) return std::nullopt;
  const std::string text = base::read_text(path, text_limit);
  std::string_view rest = text;
  take_line(rest);  // the commit
  const std::optional<std::string> hash = as_sha256(take_line(rest));
  if (!hash) return std::nullopt;
  return PublishedHash{.sha256 = *hash, .source = path.string()};
}

std::optional<PublishedHash> from_link(const fs::path& path) {
  std::error_code error;
  const fs::path target = fs::read_symlink(path, error);
  if (error || target.parent_path().filename() != "blobs") return std::nullopt;
  const std::optional<std::string> hash = as_sha256(target.filename().string());
  if (!hash) return std::nullopt;
  return PublishedHash{.sha256 = *hash, .source = target.string()};
}

}  // namespace

std::optional<std::string> parse_sums(std::string_view text, std::string_view name, std::string_view where) {
  std::optional<std::string> found;
  for (std::size_t number = 1; !text.empty(); ++number) {
    const std::string_view line = take_line(text);
    if (line.empty() || line.starts_with('#')) continue;
    const std::optional<std::string> hash = as_sha256(line.substr(0, digits));
    const bool shaped = hash && line.size() > digits + 2 && line[digits] == ' ' &&
                        (line[digits + 1] == ' ' || line[digits + 1] == '*');
    if (!shaped) {
      base::throw_usage({.what = "a line of sha256sum is expected here",
                         .where = std::string(where) + ":" + std::to_string(number)});
    }
    std::string_view file = line.substr(digits + 2);
    if (file.starts_with("./")) file.remove_prefix(2);
    if (file == name) found = hash;
  }
  return found;
}

std::optional<PublishedHash> find_published(const fs::path& folder, const std::string& name) {
  const fs::path sums = folder / "SHA256SUMS";
  std::error_code ignored;
  if (fs::exists(sums, ignored)) {
    if (const auto hash = parse_sums(base::read_text(sums, text_limit), name, sums.string()))
      return PublishedHash{.sha256 = *hash, .source = sums.string()};
  }
  const fs::path metadata = folder / ".cache" / "huggingface" / "download" / (name + ".metadata");
  if (const auto hash = from_metadata(metadata)) return hash;
  return from_link(folder / name);
}

}  // namespace aima::model
