-- A small NAT: hosts inside share one address outside (RFC 3022, "traditional NAT" with ports).
--
-- Ports: inside and outside, both ways each. Packets of UDP, TCP and ICMP echo over IPv4 are
-- translated; a mapping is of an address and a port inside, whatever is at the other end (RFC 4787
-- calls it endpoint-independent), and is kept for `idle` seconds after its last packet.
--
-- config: address (outside), first_port = 1024, last_port = 65535, idle = 120
--
-- What was mapped stays so when this file changes and is loaded again.

local Nat = {}
Nat.tick_every = 1

local UDP, TCP, ICMP = 17, 6, 1

local function address_of(text)
  local a, b, c, d = tostring(text):match("^(%d+)%.(%d+)%.(%d+)%.(%d+)$")
  a, b, c, d = tonumber(a), tonumber(b), tonumber(c), tonumber(d)
  if not a or math.max(a, b, c, d) > 255 then
    error("config.address must be an address of IPv4, not " .. tostring(text), 0)
  end
  return a * 2 ^ 24 + b * 2 ^ 16 + c * 2 ^ 8 + d
end

function Nat:new(config)
  local counters = {}
  for _, name in ipairs({ "out", "back", "mapped", "expired", "drop_not_translated",
    "drop_no_mapping", "drop_no_port" }) do
    counters[name] = counter.create(name)
  end
  return setmetatable({
    address = address_of(config.address),
    first_port = config.first_port or 1024,
    last_port = config.last_port or 65535,
    idle = config.idle or 120,
    by_inside = {},  -- protocol, address and port inside, as one number: the mapping
    by_port = {},    -- protocol and port outside, as one number: the mapping
    next_port = config.first_port or 1024,
    counters = counters,
  }, { __index = Nat })
end

function Nat:inherit(old)
  if old.address == self.address then
    self.by_inside, self.by_port, self.next_port = old.by_inside, old.by_port, old.next_port
  end
end

-- Ones' complement arithmetic of checksums (RFC 1624, equation 3): `sum` with `was` replaced.
local function updated(sum, was, now)
  local s = bit.bxor(sum, 0xffff) + bit.bxor(was, 0xffff) + now
  s = bit.band(s, 0xffff) + bit.rshift(s, 16)
  s = bit.band(s, 0xffff) + bit.rshift(s, 16)
  return bit.bxor(s, 0xffff)
end

-- Updates the checksum at `at` for 16 bits that change. One of UDP that is 0 says that there is
-- none (RFC 768).
local function update(p, at, was, now, is_udp)
  local sum = p:u16(at)
  if is_udp and sum == 0 then return end
  sum = updated(sum, was, now)
  if is_udp and sum == 0 then sum = 0xffff end
  p:set_u16(at, sum)
end

-- Replaces 16 bits at `at`, and their part in the checksum at `sum_at`.
local function replace(p, at, value, sum_at, is_udp)
  update(p, sum_at, p:u16(at), value, is_udp)
  p:set_u16(at, value)
end

-- Replaces an address at `at`: it is in the checksum of the header, and in that of UDP and TCP.
local function replace_address(p, at, address, sum_at, is_udp)
  local high, low = math.floor(address / 65536), address % 65536
  if sum_at then
    update(p, sum_at, p:u16(at), high, is_udp)
    update(p, sum_at, p:u16(at + 2), low, is_udp)
  end
  replace(p, at, high, 24)
  replace(p, at + 2, low, 24)
end

-- Where the ports of a packet are: protocol, offsets of source port, destination port, checksum.
-- The identifier of an ICMP echo is both. Nothing for a packet that is not translated.
local function layout(p, is_out)
  if p.length < 34 or p:u16(12) ~= 0x0800 or math.floor(p[14] / 16) ~= 4 then return nil end
  local header = 14 + (p[14] % 16) * 4
  -- Fragments but whole packets have no ports, or a checksum over bytes that are elsewhere.
  if header < 34 or p.length < header + 8 or bit.band(p:u16(20), 0x3fff) ~= 0 then return nil end
  local protocol = p[23]
  if protocol == UDP then
    return protocol, header, header + 2, header + 6
  elseif protocol == TCP and p.length >= header + 20 then
    return protocol, header, header + 2, header + 16
  elseif protocol == ICMP and p[header] == (is_out and 8 or 0) then
    return protocol, header + 4, header + 4, header + 2
  end
  return nil
end

-- A mapping of an address and a port inside; nil when no port is free.
function Nat:mapping(protocol, address, port)
  local inside = (protocol * 2 ^ 32 + address) * 65536 + port
  local mapping = self.by_inside[inside]
  if mapping then return mapping end
  for _ = self.first_port, self.last_port do
    local candidate = self.next_port
    self.next_port = candidate < self.last_port and candidate + 1 or self.first_port
    local outside = protocol * 65536 + candidate
    if not self.by_port[outside] then
      mapping = { inside = inside, outside = outside, address = address, port = port,
        mapped = candidate, used = 0 }
      self.by_inside[inside], self.by_port[outside] = mapping, mapping
      counter.add(self.counters.mapped)
      return mapping
    end
  end
  return nil
end

function Nat:out(p)
  local protocol, source, _, sum = layout(p, true)
  if not protocol then return "drop_not_translated" end
  local mapping = self:mapping(protocol, p:u32(26), p:u16(source))
  if not mapping then return "drop_no_port" end
  mapping.used = engine.now()
  local is_udp = protocol == UDP
  replace_address(p, 26, self.address, protocol ~= ICMP and sum, is_udp)
  replace(p, source, mapping.mapped, sum, is_udp)
end

function Nat:back(p)
  local protocol, _, destination, sum = layout(p, false)
  if not protocol or p:u32(30) ~= self.address then return "drop_not_translated" end
  local mapping = self.by_port[protocol * 65536 + p:u16(destination)]
  if not mapping then return "drop_no_mapping" end
  mapping.used = engine.now()
  local is_udp = protocol == UDP
  replace_address(p, 30, mapping.address, protocol ~= ICMP and sum, is_udp)
  replace(p, destination, mapping.port, sum, is_udp)
end

function Nat:translate(from, to, method, counted)
  while not link.empty(from) do
    local p = link.receive(from)
    local reason = method(self, p)
    if reason then
      counter.add(self.counters[reason])
      packet.free(p)
    else
      counter.add(counted)
      link.transmit(to, p)
    end
  end
end

function Nat:push()
  self:translate(self.input.inside, self.output.outside, self.out, self.counters.out)
  self:translate(self.input.outside, self.output.inside, self.back, self.counters.back)
end

function Nat:tick()
  local before = engine.now() - self.idle
  for outside, mapping in pairs(self.by_port) do
    if mapping.used < before then
      self.by_port[outside], self.by_inside[mapping.inside] = nil, nil
      counter.add(self.counters.expired)
    end
  end
end

return Nat
