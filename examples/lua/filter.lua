-- Lets packets of UDP to one port pass, of IPv4 and IPv6.
--
-- config: port

local Filter = {}

function Filter:new(config)
  local port = config.port
  if type(port) ~= "number" or port < 1 or port > 65535 then
    error("config.port must be a port, 1 to 65535", 0)
  end
  return setmetatable({
    port = port,
    passed = counter.create("passed"),
    dropped = counter.create("drop_filter"),
  }, { __index = Filter })
end

-- Whether a packet is UDP to the port. Of IPv4 the first fragment has the ports.
local function is_wanted(p, port)
  if p.length < 42 then return false end
  local ethertype = p:u16(12)
  if ethertype == 0x0800 then
    local header = (p[14] % 16) * 4
    return p[23] == 17 and p:u16(20) % 0x2000 == 0 and header >= 20
      and p.length >= 14 + header + 8 and p:u16(14 + header + 2) == port
  elseif ethertype == 0x86dd then
    return p.length >= 62 and p[20] == 17 and p:u16(56) == port
  end
  return false
end

function Filter:push()
  local input, output, port = self.input.input, self.output.output, self.port
  local passed, dropped = 0, 0
  while not link.empty(input) do
    local p = link.receive(input)
    if is_wanted(p, port) then
      link.transmit(output, p)
      passed = passed + 1
    else
      packet.free(p)
      dropped = dropped + 1
    end
  end
  counter.add(self.passed, passed)
  counter.add(self.dropped, dropped)
end

return Filter
