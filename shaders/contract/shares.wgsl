// The steps of all tiles one after the other, p.steps for each tile, of {{DEPTH}} each, are cut
// into equal shares. A part of a tile is stored to one of two slots of its share: to the first one
// if the share begins within the tile, to the other one if the tile ends beyond the share.

// The first step of a share. The first p.longer shares have one step more than p.share.
fn share_start(share: u32) -> u32 {
    return share * p.share + min(share, p.longer);
}

// The number of vec4s in a tile and in one of its rows, in the order of a slot.
const VEC4S = {{TILE_M}} * {{TILE_N}} / 4u;
const ROW = {{TILE_N}} / 4u;
