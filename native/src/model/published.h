/// SHA-256 digests that whoever published a model gave for its files, as they come with a download.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

namespace aima::model {

struct PublishedHash {
  std::string sha256;  ///< 64 lower-case hex digits
  std::string source;  ///< the file or link that says so
};

/// The published digest of `folder`/`name`, from the first of these that has one:
/// - `folder`/SHA256SUMS: lines of sha256sum;
/// - `folder`/.cache/huggingface/download/NAME.metadata, as `hf download --local-dir` leaves it: its second
/// line
///   is the entity tag, for large files their SHA-256;
/// - the file itself as a link into blobs/SHA256, as the Hugging Face cache holds it.
/// Throws base::Error (usage) when a SHA256SUMS is malformed.
std::optional<PublishedHash> find_published(const std::filesystem::path& folder, const std::string& name);

/// The digest of `name` in the text of a SHA256SUMS; `where` names it in errors.
std::optional<std::string> parse_sums(std::string_view text, std::string_view name, std::string_view where);

}  // namespace aima::model
