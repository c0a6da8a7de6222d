// IEEE half precision, rounded to nearest even: the default cache.
#pragma once

#include "plain_pages.h"

namespace octavo::OCTAVO_LEVEL::kv_f16 {

using Format = PlainPages<uint16_t>;

}  // namespace octavo::OCTAVO_LEVEL::kv_f16
