-- Notes from where a scan of the database is good, and keeps tombstones until it has ended.
-- KEYS  1 meta · 2 hold
-- ARGV  1 epoch · 2 loaded field · 3 hold's lifetime in milliseconds · 4 token of the load · 5 field of the present id · 6 the table's id
-- Answers { loaded: 1 or 0, the drained position, the shard's epoch }.
local meta = redis.call('HMGET', KEYS[1], 'epoch', ARGV[2], 'drained', ARGV[5])
if meta[1] ~= ARGV[1] then return redis.error_reply('EPOCH another server, or another history of it') end
if meta[4] then
  local present, since = string.match(meta[4], '^(%d+) (%d+)$')
  if present ~= ARGV[6] then return redis.error_reply('SUCCEEDED another server serves the table with other columns') end
  if tonumber(meta[3] or '0') < tonumber(since) then
    return redis.error_reply('UNDRAINED what was written with other columns is not in the database')
  end
end
redis.call('SET', KEYS[2], ARGV[4], 'PX', ARGV[3])
return { meta[2] and 1 or 0, meta[3] or '0', meta[1] }
