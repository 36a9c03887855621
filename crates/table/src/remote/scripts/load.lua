-- Rows of the database in bulk: never in place of what is newer, never what was deleted.
-- KEYS  1 meta · 2 rows · 3 deleted · 4 order · then the counters · then the reservations of each unique column and shard
-- ARGV  1 epoch · 2 loaded field · 3 since · 4 flags: s (shared) or -, o (ordered) or - · 5 rows · 6 counted values · 7 groups of claims
--       8 bytes of a stub (numbers), then for each row: key, a head of zeros and the row
--       then for each counted value: its row's key, key's index, fingerprint
--       then for each group: key's index, claims (number), for each claim: fingerprint, what reserves it for its row
--       then for each other shard in which values of these rows are reserved: field of its generation, generation, field of the newest
--       reservation, its number
-- Answers { rows taken, row's key, key's index, fingerprint, holder … of each value that somebody else holds }.
local meta = redis.call('HMGET', KEYS[1], 'epoch', ARGV[2], 'forgotten', 'full')
if meta[1] ~= ARGV[1] then return redis.error_reply('EPOCH another server, or another history of it') end
local is_loaded, since = meta[2], tonumber(ARGV[3])
local may_add = not is_loaded or string.sub(ARGV[4], 1, 1) == 's'
if may_add and tonumber(meta[3] or '0') > since then return redis.error_reply('STALE what was deleted has been forgotten') end
local order = string.sub(ARGV[4], 2, 2) == 'o'
local has_deleted = may_add and redis.call('ZCARD', KEYS[3]) > 0
local rows_at, rows = 9, tonumber(ARGV[5])
local counted_at, counted = rows_at + 2 * rows, tonumber(ARGV[6])

-- The claims by group: the reservations' key, its index, the place of the first claim and how many there are.
local groups = {}
local at = counted_at + 3 * counted
for i = 1, tonumber(ARGV[7]) do
  local claims = tonumber(ARGV[at + 1])
  groups[i] = { KEYS[tonumber(ARGV[at])], ARGV[at], at + 2, claims }
  at = at + 2 + 2 * claims
end
local noted = {}
for i = at, #ARGV, 4 do
  local known = redis.call('HMGET', KEYS[1], ARGV[i], ARGV[i + 2])
  if (known[1] or '') ~= ARGV[i + 1] then return redis.error_reply('FENCED another generation of reservations') end
  if tonumber(ARGV[i + 3]) > tonumber(known[2] or '0') then noted[#noted + 1] = i + 2 end
end
for _, note in ipairs(noted) do redis.call('HSET', KEYS[1], ARGV[note], ARGV[note + 1]) end

-- Whether a hash has none of the fields that stand in ARGV with their values.
local function has_none(key, first, fields)
  if fields == 0 then return true end
  local names = {}
  for i = 1, fields do names[i] = ARGV[first + 2 * i - 2] end
  local found = redis.call('HMGET', key, unpack(names))
  for i = 1, fields do
    if found[i] then return false end
  end
  return true
end

local function is_all_new()
  if is_loaded or has_deleted or not has_none(KEYS[2], rows_at, rows) then return false end
  for _, group in ipairs(groups) do
    if not has_none(group[1], group[3], group[4]) then return false end
  end
  return true
end

-- Adds to the counters what the rows of these keys (nil: all of them) have.
local function count(taken)
  for i = counted_at, counted_at + 3 * counted - 1, 3 do
    if not taken or taken[ARGV[i]] then
      redis.call('HINCRBY', KEYS[tonumber(ARGV[i + 1])], ARGV[i + 2], 1)
    end
  end
end

-- A shard that is being filled knows none of these rows and values, as a rule: they go in together, three times as fast as one by one.
if is_all_new() then
  redis.call('HSET', KEYS[2], unpack(ARGV, rows_at, counted_at - 1))
  for _, group in ipairs(groups) do
    redis.call('HSET', group[1], unpack(ARGV, group[3], group[3] + 2 * group[4] - 1))
  end
  if order then
    for i = rows_at, counted_at - 1, 2 do redis.call('ZADD', KEYS[4], 0, ARGV[i]) end
  end
  count(nil)
  return { rows }
end

local answer, taken, stub_bytes = { 0 }, {}, tonumber(ARGV[8])
for i = rows_at, counted_at - 1, 2 do
  local key, row = ARGV[i], ARGV[i + 1]
  local deleted = has_deleted and redis.call('ZSCORE', KEYS[3], key)
  if may_add and not (deleted and tonumber(deleted) > since) and redis.call('HSETNX', KEYS[2], key, row) == 1 then
    answer[1] = answer[1] + 1
    taken[key] = true
    if order then redis.call('ZADD', KEYS[4], 0, key) end
  elseif redis.call('HSTRLEN', KEYS[2], key) == stub_bytes then
    local kind, version = struct.unpack('<BI7', redis.call('HGET', KEYS[2], key))
    if kind == 1 and version <= since and not meta[4] then
      answer[1] = answer[1] + 1
      redis.call('HSET', KEYS[2], key, struct.pack('<BI7', 0, version) .. string.sub(row, 9))
    end
  end
end
count(taken)
for _, group in ipairs(groups) do
  for i = group[3], group[3] + 2 * group[4] - 1, 2 do
    local key = string.sub(ARGV[i + 1], 9)
    if taken[key] and redis.call('HSETNX', group[1], ARGV[i], ARGV[i + 1]) == 0 then
      local holder = redis.call('HGET', group[1], ARGV[i])
      if string.sub(holder, 9) ~= key then
        for _, part in ipairs({ key, group[2], ARGV[i], holder }) do answer[#answer + 1] = part end
      end
    end
  end
end
return answer
