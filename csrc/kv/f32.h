// Floats as they are: the exact cache, for comparisons.
#pragma once

#include "plain_pages.h"

namespace octavo::OCTAVO_LEVEL::kv_f32 {

using Format = PlainPages<float>;

}  // namespace octavo::OCTAVO_LEVEL::kv_f32
