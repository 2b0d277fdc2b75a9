-- What a script has of Lua: what computes, and nothing that reads files, loads code, reaches other
-- states of the interpreter, or stays in C for long.
--
-- A script that does not return is stopped by a hook, which LuaJIT looks at between instructions
-- and in loops of traces, but not in C. What stays in C for longer than its arguments take to read
-- is therefore written in Lua here: patterns, which may take exponential time, and `table.sort`.

local patterns, notice, allowed = ...
local error, pairs, pcall, select = error, pairs, pcall, select
local tostring, type = tostring, type
local string = string
local format, concat, unpack = string.format, table.concat, unpack

-- `string.format` calls `__tostring` from C, and so would nest in C; the conversion is made before.
function string.format(text, ...)
  local n = select("#", ...)
  for at = 1, n do
    if type((select(at, ...))) == "table" then
      local values = { ... }
      for i = at, n do
        if type(values[i]) == "table" then values[i] = tostring(values[i]) end
      end
      return format(text, unpack(values, 1, n))
    end
  end
  return format(text, ...)
end

for name, made in pairs(patterns) do
  string[name] = made
end
string.gfind, string.dump = nil, nil

local function is_less(a, b)
  return a < b
end

-- Heap sort: in place, and its time does not depend on the order.
function table.sort(t, before)
  if before ~= nil and type(before) ~= "function" then
    error("table.sort: the order must be a function", 2)
  end
  before = before or is_less
  local n = #t
  local function sift(at, last)
    local value = t[at]
    while true do
      local child = 2 * at
      if child > last then break end
      if child < last and before(t[child], t[child + 1]) then child = child + 1 end
      if not before(value, t[child]) then break end
      t[at] = t[child]
      at = child
    end
    t[at] = value
  end
  for at = math.floor(n / 2), 1, -1 do sift(at, n) end
  for last = n, 2, -1 do
    t[1], t[last] = t[last], t[1]
    sift(1, last - 1)
  end
end

-- Calls of `pcall` within one another; each takes memory of the worker's own stack.
local NESTED_MAX = 100
local nested = 0

local function leave(...)
  nested = nested - 1
  return ...
end

local function protected(...)
  if nested >= NESTED_MAX then error("pcall: nested too deeply", 2) end
  nested = nested + 1
  return leave(pcall(...))
end

-- The handler runs when the stack has been left, not above it: there no hook could stop it.
local function after(handler, is_well, ...)
  if is_well then return true, ... end
  local _, value = protected(handler, (...))
  return false, value
end

local function xpcall(f, handler, ...)
  return after(handler, protected(f, ...))
end

local function print(...)
  local words = {}
  for at = 1, select("#", ...) do
    words[at] = tostring((select(at, ...)))
  end
  notice(concat(words, "\t"))
end

local function whole_copy_of(t)
  local copy = {}
  for key, value in pairs(t) do copy[key] = value end
  return copy
end

local function copy_of(library, names)
  local t = {}
  for name in names:gmatch("%a+") do t[name] = library[name] end
  return t
end

local basic = {}
for name in (
  "assert error getmetatable ipairs next pairs rawequal rawget rawset select setmetatable "
  .. "tonumber tostring type unpack _VERSION"
):gmatch("[%a_]+") do
  basic[name] = _G[name]
end
local globals = _G
getmetatable("").__metatable = false
-- The table that methods of strings are found in, as it is before a script had it.
local strings = whole_copy_of(string)

-- The globals of a script; each load of one has its own.
return function(api)
  for name in pairs(whole_copy_of(string)) do string[name] = nil end
  for name, value in pairs(strings) do string[name] = value end
  -- A script that was stopped may have left it as it was.
  nested = 0
  local t = { print = print, pcall = protected, xpcall = xpcall }
  for name, value in pairs(basic) do t[name] = value end
  t._G = t
  t.string = string
  t.math = copy_of(globals.math, "abs acos asin atan atan ceil cos cosh deg exp floor fmod frexp "
    .. "huge ldexp log max min modf pi pow rad random randomseed sin sinh sqrt tan tanh")
  t.table = copy_of(globals.table, "concat insert maxn remove sort")
  t.bit = copy_of(globals.bit, "arshift band bnot bor bswap bxor lshift rol ror rshift tobit tohex")
  for name, value in pairs(api) do t[name] = whole_copy_of(value) end
  for name, value in pairs(allowed) do t[name] = value end
  -- As Snabb's apps ask for them.
  local modules = {
    ["core.app"] = t.engine, ["core.link"] = t.link, ["core.packet"] = t.packet,
    ["core.counter"] = t.counter, bit = t.bit, string = t.string, math = t.math, table = t.table,
  }
  for name, value in pairs(allowed) do modules[name] = value end
  function t.require(name)
    local found = modules[name]
    if not found then error("there is no module " .. tostring(name), 2) end
    return found
  end
  return t
end
