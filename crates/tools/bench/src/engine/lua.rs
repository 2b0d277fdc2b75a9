//! Apps in Lua that do the same as apps in Rust in other cases.

use carina_lua::config::{LuaConfig, Script as Text};

/// What a measured Lua script does, by the case in which an app in Rust does the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Script {
    /// Filters frames as the case `filter` does.
    Filter,
    /// Counts frames as the case `count` does, with `examples/lua/count.lua`.
    Count,
    /// Forwards frames as the case `hop-1` does.
    Hop,
}

impl Script {
    /// The name of the case whose Rust app does the same.
    pub(super) fn same_in_rust(self) -> &'static str {
        match self {
            Script::Filter => "filter",
            Script::Count => "count",
            Script::Hop => "hop-1",
        }
    }

    pub(super) fn config(self) -> LuaConfig {
        let (name, text) = match self {
            Script::Filter => ("filter.lua", FILTER),
            Script::Count => (
                "count.lua",
                include_str!("../../../../../examples/lua/count.lua"),
            ),
            Script::Hop => ("hop.lua", HOP),
        };
        LuaConfig::new(Text::of(name, text), Default::default())
    }
}

/// The filter `udp dst port 9 and src net 198.18.0.0/15`, which also handles IPv6 and fragments.
const FILTER: &str = "
local Filter = {}
local band = bit.band
local function is_wanted(p)
  if p.length < 42 or p:u16(12) ~= 0x0800 then return false end
  local header = 14 + band(p[14], 15) * 4
  return p[23] == 17 and band(p:u16(20), 0x1fff) == 0 and p.length >= header + 8
    and p:u16(header + 2) == 9 and p[26] == 198 and band(p[27], 0xfe) == 18
end
function Filter:push()
  local input, output = self.input.input, self.output.output
  while not link.empty(input) do
    local p = link.receive(input)
    if is_wanted(p) then link.transmit(output, p) else packet.free(p) end
  end
end
return Filter
";

/// Swaps the MAC addresses and decrements the TTL, and adapts the checksum (RFC 1624).
const HOP: &str = "
local Hop = {}
function Hop:push()
  local input, output = self.input.input, self.output.output
  while not link.empty(input) do
    local p = link.receive(input)
    if p.length >= 34 and p:u16(12) == 0x0800 and p[22] > 1 then
      local a, b = p:u32(0), p:u16(4)
      p:set_u32(0, p:u32(6))
      p:set_u16(4, p:u16(10))
      p:set_u32(6, a)
      p:set_u16(10, b)
      p[22] = p[22] - 1
      local sum = p:u16(24) + 0x100
      p:set_u16(24, sum + bit.rshift(sum, 16))
      link.transmit(output, p)
    else
      packet.free(p)
    end
  end
end
return Hop
";
