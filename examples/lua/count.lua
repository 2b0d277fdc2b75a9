-- Counts packets and bytes by what they carry, and passes all of them on.

local Count = {}

local NAMES = { [0x0800] = "ipv4", [0x86dd] = "ipv6", [0x0806] = "arp" }

function Count:new()
  local counters = {}
  for ethertype, name in pairs(NAMES) do
    counters[ethertype] = {
      packets = counter.create(name .. "_packets"),
      bytes = counter.create(name .. "_bytes"),
    }
  end
  local other = {
    packets = counter.create("other_packets"),
    bytes = counter.create("other_bytes"),
  }
  return setmetatable({ counters = counters, other = other }, { __index = Count })
end

function Count:push()
  local input, output = self.input.input, self.output.output
  local counters, other = self.counters, self.other
  while not link.empty(input) do
    local p = link.receive(input)
    local counted = p.length >= 14 and counters[p:u16(12)] or other
    counter.add(counted.packets)
    counter.add(counted.bytes, p.length)
    link.transmit(output, p)
  end
end

return Count
