-- One change of one row: the row, its queue entry, counters, order and (outside a cluster) unique values, or nothing.
-- KEYS  1 meta · 2 stream · 3 rows · 4 deleted · 5 fences · 6 order · then one for each counter, claim and release
-- ARGV  1 epoch · 2 loaded field · 3 expect: "absent", "any" or the head · 4 key · 5 record · 6 flags · 7 token ("": none)
--       8 generations · 9 counters · 10 claims · 11 releases (numbers), then their arguments in that order:
--       generation: field, value · counter: fingerprint, delta · claim: column, fingerprint · release: fingerprint
-- flags: bytes p (put) or d (delete), f (refused when full) or -, o (ordered) or -
-- Answers the version, or { why, detail… }.
local meta = redis.call('HMGET', KEYS[1], 'epoch', ARGV[2], 'full')
if meta[1] ~= ARGV[1] then return redis.error_reply('EPOCH another server, or another history of it') end
if not meta[2] then return redis.error_reply('NOTLOADED the shard is not loaded') end
local key, record, flags = ARGV[4], ARGV[5], ARGV[6]
if meta[3] and string.sub(flags, 2, 2) == 'f' then return { 'full' } end
if ARGV[7] ~= '' and redis.call('HEXISTS', KEYS[5], ARGV[7] .. key) == 1 then return { 'fenced' } end
local at = 12
for _ = 1, tonumber(ARGV[8]) do
  if (redis.call('HGET', KEYS[1], ARGV[at]) or '') ~= ARGV[at + 1] then return { 'fenced' } end
  at = at + 2
end
local counters, claims, releases = tonumber(ARGV[9]), tonumber(ARGV[10]), tonumber(ARGV[11])
local claim_key, claim_at = 6 + counters, at + 2 * counters
local is_put = string.sub(flags, 1, 1) == 'p'
local version

-- A new row, which is what most writes are: its places are taken as they are looked at, and given back when one of them was not free.
if ARGV[3] == 'absent' then
  version = redis.call('HINCRBY', KEYS[1], 'n', 1)
  if redis.call('HSETNX', KEYS[3], key, struct.pack('<BI7', 0, version) .. string.sub(record, 4)) == 0 then
    redis.call('HINCRBY', KEYS[1], 'n', -1)
    return { 'changed', redis.call('HGET', KEYS[3], key) }
  end
  local reservation, before, refused, taken = struct.pack('<I8', version) .. key, {}, nil, 0
  while taken < claims and not refused do
    local values, value = KEYS[claim_key + taken + 1], ARGV[claim_at + 2 * taken + 1]
    if redis.call('HSETNX', values, value, reservation) == 0 then
      local holder = redis.call('HGET', values, value)
      if string.sub(holder, 9) == key then
        redis.call('HSET', values, value, reservation)
        before[taken + 1] = holder
      else
        refused = { 'taken', ARGV[claim_at + 2 * taken], holder }
      end
    end
    if not refused then taken = taken + 1 end
  end
  if not refused then
    local queued = redis.pcall('XADD', KEYS[2], string.format('%.0f-0', version), 'r', record)
    if queued.err then refused = queued end
  end
  if refused then
    for i = 1, taken do
      local values, value = KEYS[claim_key + i], ARGV[claim_at + 2 * i - 1]
      if before[i] then redis.call('HSET', values, value, before[i]) else redis.call('HDEL', values, value) end
    end
    redis.call('HDEL', KEYS[3], key)
    redis.call('HINCRBY', KEYS[1], 'n', -1)
    return refused
  end
else
  if ARGV[3] ~= 'any' then
    local found = redis.call('HGET', KEYS[3], key)
    if not found then return { 'changed' } end
    if string.sub(found, 1, 8) ~= ARGV[3] then return { 'changed', found } end
  end
  for i = 1, claims do
    local holder = redis.call('HGET', KEYS[claim_key + i], ARGV[claim_at + 2 * i - 1])
    if holder and string.sub(holder, 9) ~= key then return { 'taken', ARGV[claim_at + 2 * i - 2], holder } end
  end
  version = redis.call('HINCRBY', KEYS[1], 'n', 1)
  redis.call('XADD', KEYS[2], string.format('%.0f-0', version), 'r', record)
  if is_put then
    redis.call('HSET', KEYS[3], key, struct.pack('<BI7', 0, version) .. string.sub(record, 4))
  else
    redis.call('HDEL', KEYS[3], key)
    redis.call('ZADD', KEYS[4], string.format('%.0f', version), key)
  end
  for i = 1, claims do
    redis.call('HSET', KEYS[claim_key + i], ARGV[claim_at + 2 * i - 1], struct.pack('<I8', version) .. key)
  end
end
if string.sub(flags, 3, 3) == 'o' then
  if is_put then redis.call('ZADD', KEYS[6], 0, key) else redis.call('ZREM', KEYS[6], key) end
end
for i = 1, counters do
  local value, delta = ARGV[at + 2 * i - 2], ARGV[at + 2 * i - 1]
  if redis.call('HINCRBY', KEYS[6 + i], value, delta) <= 0 then redis.call('HDEL', KEYS[6 + i], value) end
end
local release_key, release_at = claim_key + claims, claim_at + 2 * claims
for i = 1, releases do
  local value = ARGV[release_at + i - 1]
  local holder = redis.call('HGET', KEYS[release_key + i], value)
  if holder and string.sub(holder, 9) == key then redis.call('HDEL', KEYS[release_key + i], value) end
end
return version
