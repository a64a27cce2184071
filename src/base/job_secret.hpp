// job_secret.hpp: finding the secret by which the ranks of a job know each other, and making one.
//
// Written as hexadecimal digits everywhere, so that files and variables can be made and compared by
// hand. Does not know how the secret is used (the bootstrap's handshake).
#pragma once

#include <string>
#include <string_view>

#include "tutti/status.hpp"

namespace tutti::base {

struct Config;

// Reads 32 to 512 hexadecimal digits; space around them is allowed.
// Errors  invalid_argument; the text never repeats the digits.
Result<std::string> parse_job_secret(std::string_view text);

// 32 bytes of the kernel's randomness, as hexadecimal digits and a newline: a secret file's
// content.
Result<std::string> make_job_secret();

// The bytes of the secret: TUTTI_JOB_SECRET, else the file that TUTTI_JOB_SECRET_FILE names, else
// .tutti/secret in `home` where there is one; empty where there is none.
//
// Errors  system_error: the named file cannot be read; invalid_argument: it holds no secret, or
//         others than its owner may read or write it.
Result<std::string> find_job_secret(const Config& config, const std::string& home);

}  // namespace tutti::base
