-- What a shard knows of itself, whatever the epoch.
-- KEYS  1 meta · 2 stream
-- ARGV  1 epoch
-- Answers { the connection's epoch, the shard's or "", n, last entry's number, drained, generation, entries, reservations made or nil,
-- opening, the last number before the last repair, the last one of that repair, the generation whose reservations are made again or "" }.
local meta = redis.call('HMGET', KEYS[1], 'epoch', 'n', 'drained', 'generation', 'reserved', 'opening', 'gap', 'base', 'rebuilding')
local last = '0'
local newest = redis.call('XREVRANGE', KEYS[2], '+', '-', 'COUNT', 1)
if newest[1] then last = string.match(newest[1][1], '^(%d+)') end
return { ARGV[1], meta[1] or '', meta[2] or '0', last, meta[3] or '0', meta[4] or '', redis.call('XLEN', KEYS[2]), meta[5], meta[6] or '',
  meta[7] or '0', meta[8] or '0', meta[9] or '' }
